# Concurrent links, renames and removals lose inodes; afterwards the tree can't be removed.
mkdir s
work() { set +e; for i in $(seq 150); do
	echo $1 >s/$1.$((i%9)) 2>/dev/null; ln -f s/$1.$((i%9)) s/x.$((i%5)) 2>/dev/null; mv -f s/x.$((i%5)) s/y.$((i%7)) 2>/dev/null
	mkdir -p s/d$((i%3))/e 2>/dev/null; mv -T s/d$((i%3)) s/d$1 2>/dev/null; rm -rf s/d$1 s/y.$((i%4)) 2>/dev/null; done; true; }
work 1 & a=$!; work 2 & b=$!; work 3 & c=$!; wait $a; wait $b; wait $c
ls -lR s >../out 2>&1; ! grep -F '?' ../out || exit 1; rm -r s; test ! -e s
