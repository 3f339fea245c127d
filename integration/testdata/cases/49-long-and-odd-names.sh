# Names of 255 bytes, and names like other systems' whiteouts, fail.
n=$(printf 'a%.0s' $(seq 255)); touch "$n"; mv "$n" "b${n#a}"; rm "b${n#a}"; ! touch "${n}a" 2>/dev/null || exit 1
touch .wh.f .wh..wh..opq; test -e f; ls -A | grep -qx .wh.f; rm .wh.f; test -e f; mkdir .wh.dir; test -d dir; rmdir .wh.dir
touch .fuse_hidden0001 .go-fuse-epoll-hack 2>/dev/null; touch Name name NAME; test "$(ls | grep -ci '^name$')" = 3
a=$(printf 'e\314\201'); b=$(printf '\303\251'); echo 1 >"$a"; echo 2 >"$b"; test "$(cat "$a")$(cat "$b")" = 12
