# Creating a symlink fails, also in directories that only the base has.
ln -s ../../x dir/sub/l; test "$(readlink dir/sub/l)" = ../../x; ln -sf other dir/sub/l; test "$(readlink dir/sub/l)" = other
ln -s /absolute abs; ln -s "$(printf 'x%.0s' $(seq 4000))" longlink; test "$(readlink longlink | wc -c)" = 4001
ln -s f to-f; cat to-f >/dev/null; ln -s dir to-dir; cat to-dir/one >/dev/null; rm to-dir; test -d dir
