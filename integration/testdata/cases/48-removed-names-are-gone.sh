# A removed name is still listed, or can't be made again.
rm f; ! ls -A | grep -qx f || exit 1; ! ls -la | grep -F '?' || exit 1; mkdir f; rm -r f; echo again >f; test "$(cat f)" = again
rm -r dir; test ! -e dir; mkdir dir; test -z "$(ls -A dir)"; echo x >dir/one; test "$(ls dir)" = one; rm -r dir; ! ls dir 2>/dev/null
