# d_ino differs from st_ino, for base and new entries.
open('new', 'w').close(); os.mkdir('newdir'); os.symlink('f', 'newlink'); os.rename('dir/two', 'moved')
for d in ('.', 'dir', 'newdir'):
    for e in os.scandir(d):
        assert e.inode() == os.lstat(e.path).st_ino, e.path
