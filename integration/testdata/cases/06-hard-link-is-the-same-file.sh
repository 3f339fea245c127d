# A hard link gets a new inode, a wrong count, or the other's writes are not seen by it (also cases 7 and 9).
ln f b; test f -ef b; test "$(stat -c %h f)" = 2
touch new; ln new new2; test "$(stat -c %h new)" = 2; test "$(stat -c %h new2)" = 2
cat b >/dev/null; echo x >>f; tail -n 1 b | grep -qx x; echo y >>b; tail -n 1 f | grep -qx y; cmp f b
test hl1 -ef hl2; echo z >>hl1; cmp hl1 hl2; rm hl1; test "$(stat -c %h hl2)" = 1; grep -qx z hl2
