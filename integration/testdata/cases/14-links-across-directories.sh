# A package manager's links from its store to node_modules fail EXDEV.
mkdir -p store/v3 project/node_modules/p; echo js >store/v3/file
python3 -c 'import os; os.link("store/v3/file", "project/node_modules/p/index.js")'
test "$(stat -c %h store/v3/file)" = 2; test "$(stat -c %d .)" = "$(stat -c %d project/node_modules/p/index.js)"
python3 -c 'import os; os.link("dir/one", "project/one")'; test dir/one -ef project/one
