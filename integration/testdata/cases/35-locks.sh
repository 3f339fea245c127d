# Locks are refused, outlive their descriptor, or deadlock (cases 35, 36, 38).
flock f true; flock -x f -c 'flock -n f true && exit 1 || exit 0'
sleep 5 <f & holder=$!; trap 'kill $holder' EXIT
(flock -x 9; exec 9>&-) 9<f; flock -n f true
for i in 1 2 3 4 5 6 7 8 9 10; do flock f sleep .01 & flock f sleep .01; wait %2 2>/dev/null || true; done
python3 - <<'P'
import fcntl, os, struct
fd = os.open('f', os.O_RDWR); fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
pid = os.fork()
if pid == 0:
    g = os.open('f', os.O_RDWR)
    try: fcntl.lockf(g, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError: os._exit(0)
    os._exit(1)
assert os.waitpid(pid, 0)[1] == 0
fcntl.lockf(fd, fcntl.LOCK_UN); fcntl.fcntl(fd, 37, struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 0, 0, 0))
P
