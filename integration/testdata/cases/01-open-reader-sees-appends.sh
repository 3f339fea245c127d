# An open reader misses appends after the first write to a base file.
tail -n +1 -f f >../seen & reader=$!
trap 'kill $reader' EXIT
sleep .3; echo appended >>f
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do grep -q appended ../seen && exit 0; sleep .2; done
echo "tail did not see the append"; exit 1
