# A base file or directory can't be written by a user who has the permission; fresh read-only files can't be filled
# (case 52).
as() { setpriv --reuid 1000 --regid 1000 --clear-groups env PATH=/usr/bin:/bin "$@"; }
as sh -ec 'echo x >open/made; echo y >>open/writable; mkdir open/d; mv open/made open/d/; rm open/d/made; ! echo z 2>/dev/null >>f || exit 1; ! touch dir/no 2>/dev/null'
test "$(stat -c %u open/d)" = 1000
as python3 -c 'import os; f = os.open("open/pack", os.O_CREAT | os.O_RDWR, 0o444); os.write(f, b"data"); os.fchmod(f, 0o400)'
test "$(cat open/pack)" = data
mkdir -m 755 src; (cd src; git init -q; echo 1 >a; git add a; git -c user.name=a -c user.email=a commit -qm a); chown -R 1000 src
as sh -ec 'git -c safe.directory="*" clone -q src open/clone; cd open/clone; test "$(git log --oneline | wc -l)" = 1; test "$(cat a)" = 1'
