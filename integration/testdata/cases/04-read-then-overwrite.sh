# Read, then overwrite by a longer and by a shorter file: old bytes cut to the new size.
cat big >/dev/null; cp dir/two big; cmp dir/two big
cat f >/dev/null; cp sparse f; cmp sparse f
seq 1 10 >f; cmp f - <<X
$(seq 1 10)
X
