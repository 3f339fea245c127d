package fs

import "testing"

func TestComplaintsAreBounded(t *testing.T) {
	var c complaints
	said, told := 0, int64(0)
	for range 10_000 {
		if ok, dropped := c.next(); ok {
			said++
			told += dropped
		}
	}
	if said < complaintsPerSecond || said > 3*complaintsPerSecond {
		t.Errorf("%d of 10,000 were logged", said)
	}
	c.second.Store(0) // another second
	ok, dropped := c.next()
	if !ok || int64(said)+told+dropped != 10_000 {
		t.Errorf("%v: %d logged, %d told of", ok, said, told+dropped)
	}
}
