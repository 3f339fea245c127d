# WAL databases fail with SQLITE_PROTOCOL or IOERR_SHMMAP, or are damaged when a writer is killed.
sqlite3 w.db 'PRAGMA journal_mode=wal; CREATE TABLE t(a);' >/dev/null
writer() { while :; do sqlite3 -cmd '.timeout 30000' w.db 'INSERT INTO t VALUES(1)' || exit; done; }
writer & one=$!; writer & two=$!
for i in 1 2 3 4 5 6 7 8 9 10; do sqlite3 -cmd '.timeout 30000' w.db 'SELECT count(*) FROM t' >/dev/null; done
kill -9 $one $two; wait $one $two 2>/dev/null || true; sleep .2
test "$(sqlite3 -cmd '.timeout 30000' w.db 'PRAGMA integrity_check')" = ok; test "$(sqlite3 w.db 'SELECT count(*) > 0 FROM t')" = 1
