# ACLs are refused or ignored; the umask is ignored.
(umask 077; touch private); test "$(stat -c %a private)" = 600; (umask 022; mkdir pd); test "$(stat -c %a pd)" = 755
setfacl -m u:1000:rw f; getfacl -cn f | grep -qx user:1000:rw-
chmod 600 dir/one; setfacl -m u:1000:r dir/one; setfacl -m u:1000:x dir; setpriv --reuid 1000 --regid 1000 --clear-groups cat dir/one >/dev/null
mkdir def; setfacl -d -m u:1000:rwx,g::rx,o::- def; (umask 077; touch def/f; mkdir def/d); getfacl -cn def/f | grep -q user:1000:rwx
getfacl -cn def/d | grep -qx default:user:1000:rwx; test "$(stat -c %a def/f)" = 660
chmod 600 f; getfacl -cn f | grep -q 'user:1000:rw-.*#effective:---'
