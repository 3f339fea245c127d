# A read-only descriptor opened before the first write reads old data.
r = open('f', 'rb', buffering=0)
with open('f', 'r+b', buffering=0) as w:
    w.write(b'X')
assert r.read(2)[:1] == b'X'
assert os.fstat(r.fileno()).st_ino == os.stat('f').st_ino
m = mmap.mmap(r.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)
with open('f', 'r+b', buffering=0) as w:
    w.write(b'Y')
assert m[0:1] == b'Y', 'a mapping of the old descriptor is stale'
