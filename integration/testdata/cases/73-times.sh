# Times: writes move mtime and ctime, reads move nothing, directories change with their entries, set times stay.
touch -d '2001-02-03 04:05:06.123456789' f; test "$(stat -c %y f | cut -c1-29)" = '2001-02-03 04:05:06.123456789'; cat f >/dev/null
test "$(stat -c %Y f)" = "$(date -d '2001-02-03 04:05:06' +%s)"
test "$(stat -c %Y dir)" -lt 1500000000; touch dir/new; test "$(stat -c %Y dir)" -gt 1500000000
test "$(stat -c %Y open)" -lt 1500000000; c=$(stat -c %Z f); sleep 1.1; chmod 600 f; test "$(stat -c %Z f)" -gt "$c"
echo x >>f; test "$(stat -c %Y f)" -gt 1500000000; m=$(stat -c %y hl2); ln hl2 hl3; test "$(stat -c %y hl2)" = "$m"
