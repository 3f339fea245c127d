# A directory stream can't be resumed, or skips and repeats while the directory changes.
libc = ctypes.CDLL(None); libc.opendir.restype = ctypes.c_void_p; libc.readdir.restype = ctypes.c_void_p; libc.telldir.restype = ctypes.c_long
P = ctypes.c_void_p
def name(e): return ctypes.string_at(e + 19)
d = libc.opendir(b'many'); seen = []; at = None
for i in range(10**6):
    if i == 7: at = libc.telldir(P(d))
    e = libc.readdir(P(d))
    if not e: break
    seen.append(name(e))
    if i == 20:
        for k in range(30): open('many/added%d' % k, 'w').close()
        os.unlink('many/entry-199')
assert len(set(seen)) == len(seen), 'a name was listed twice'
base = [b'entry-%d' % k for k in range(199)]
assert not [n for n in base if n not in seen], 'names are missing'
libc.seekdir(P(d), ctypes.c_long(at)); again = []
while True:
    e = libc.readdir(P(d))
    if not e: break
    again.append(name(e))
assert [n for n in again if n in base] == [n for n in seen[7:] if n in base]
