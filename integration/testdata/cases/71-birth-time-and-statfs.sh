# statx gives no birth time; df says nothing of a fork.
now=$(date +%s); echo x >n; b=$(stat -c %W n); test "$b" -ge $((now - 2)); test "$b" -le $((now + 2))
test "$(stat -c %W f)" != 0; sleep 1.1; echo y >>n; test "$(stat -c %W n)" = "$b"
stat -f . >/dev/null; test "$(df --output=avail -B1 . | tail -n 1)" -gt 0; test "$(stat -f -c %l .)" = 255
