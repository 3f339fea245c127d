# Renaming a base directory fails EXDEV, or mv of directories and symlinks fails (also case 15).
python3 -c 'import os; os.rename("dir", "dir2")'
cat dir2/one dir2/sub/deep >/dev/null; test ! -e dir; mkdir dir; test -z "$(ls -A dir)"
mkdir d; echo x >d/f; python3 -c 'import os; os.rename("d", "e")'; test "$(cat e/f)" = x
python3 -c 'import os; os.rename("dir2/sub", "e/sub"); os.rename("e", "dir/e")'; cat dir/e/sub/deep >/dev/null
python3 -c 'import os; os.rename("slink", "slink2")'; test -L slink2
python3 -c '
import os
try: os.rename("dir", "dir/e/x")
except OSError as e: assert e.errno == 22
else: assert 0'
