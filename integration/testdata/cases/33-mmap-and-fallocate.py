# Write-back of mapped pages against fallocate deadlocks.
import threading
fd = os.open('m', os.O_RDWR | os.O_CREAT); os.ftruncate(fd, 1 << 20)
m = mmap.mmap(fd, 1 << 20); libc = ctypes.CDLL(None, use_errno=True); stop = False
def punch():
    while not stop:
        for off in range(0, 1 << 20, 65536):
            assert libc.fallocate(fd, 3, ctypes.c_long(off), ctypes.c_long(4096)) == 0
t = threading.Thread(target=punch); t.start()
for i in range(200):
    for off in range(0, 1 << 20, 4096): m[off] = i & 255
    if i % 20 == 0: m.flush()
stop = True; t.join(); os.fsync(fd)
