# Writes in a workspace raise no inotify events.
inotifywait -q -m -r --format '%e %f' . >../events 2>&1 & watcher=$!
trap 'kill $watcher' EXIT
sleep .5; echo x >>f; mv dir/one dir/uno; rm dir/two; mkdir nd
for i in 1 2 3 4 5 6 7 8 9 10; do
	grep -q 'MODIFY f' ../events && grep -q 'MOVED_TO uno' ../events && grep -q 'DELETE two' ../events && grep -q 'CREATE,ISDIR nd' ../events && exit 0; sleep .2
done
cat ../events; exit 1
