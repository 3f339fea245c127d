# copy_file_range returns 0 or stops early, on base files that nothing has read yet.
size = os.stat('big').st_size
src = os.open('big', os.O_RDONLY); dst = os.open('copy', os.O_RDWR | os.O_CREAT)
done = 0
while done < size:
    n = os.copy_file_range(src, dst, size - done)
    assert n > 0, done
    done += n
assert os.copy_file_range(src, dst, 1) == 0
assert open('big', 'rb').read() == open('copy', 'rb').read()
import shutil; shutil.copyfile('sparse', 'sparse2'); assert open('sparse', 'rb').read() == open('sparse2', 'rb').read()
