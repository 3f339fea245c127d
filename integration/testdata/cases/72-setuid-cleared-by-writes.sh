# setuid and setgid survive a write by another user; a script with #! does not start.
printf '#!/bin/sh\necho script runs\n' >script; chmod 755 script; test "$(./script)" = 'script runs'
for how in 'echo x >>s' 'truncate -s 1 s' 'dd if=/dev/zero of=s bs=1 count=1 conv=notrunc' 'fallocate -l 9000 s' ; do
	echo data >s; chown 1000:1000 s; chmod 6777 s; test "$(stat -c %a s)" = 6777
	setpriv --reuid 1001 --regid 1001 --clear-groups sh -c "$how" 2>../err || { echo "$how: $(cat ../err)"; exit 1; }; test "$(stat -c %a s)" = 777 || { echo "$how leaves $(stat -c %a s)"; exit 1; }
done
echo data >s; chown 1000:1000 s; chmod 6777 s; chown 1001 s; test "$(stat -c %a s)" = 777
cp /bin/sleep busy; ./busy 3 & p=$!; sleep .3; ! sh -c 'echo x >>busy' 2>/dev/null || exit 1; kill $p
