# The inode number changes when link() is a base file's first change.
i=$(stat -c %i f); ln f g; test "$(stat -c %i f)" = "$i"; test "$(stat -c %i g)" = "$i"
i=$(stat -c %i dir/one); chmod 600 dir/one; test "$(stat -c %i dir/one)" = "$i"; echo x >>dir/one; mv dir/one dir/1; test "$(stat -c %i dir/1)" = "$i"
