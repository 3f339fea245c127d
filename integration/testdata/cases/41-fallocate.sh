# fallocate's modes are refused.
fallocate -l 1M n; test "$(stat -c %s n)" = 1048576
yes | head -c 1048576 >n; fallocate -p -o 4096 -l 8192 n; test "$(tail -c +4097 n | head -c 8192 | tr -d '\0' | wc -c)" = 0; test "$(head -c 2 n)" = y
fallocate -z -o 65536 -l 4096 n; test "$(tail -c +65537 n | head -c 4096 | tr -d '\0' | wc -c)" = 0
fallocate -n -o 2M -l 1M n; test "$(stat -c %s n)" = 1048576; fallocate -p -o 0 -l 4096 big; test "$(head -c 4096 big | tr -d '\0' | wc -c)" = 0
test "$(stat -c %s big)" = 5000000
