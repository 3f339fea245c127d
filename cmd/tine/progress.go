package main

import (
	"io"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"

	"tine/sidecar"
)

// progressDelay is how long work goes on before a bar appears: what is over sooner needs none.
const progressDelay = time.Second

// progress shows a bar on standard error for work that takes longer than a second, on a terminal only. Call done when
// the work is over; the bar is wiped then.
func (a *app) progress() (report sidecar.Progress, done func()) {
	if !a.errTerminal {
		return nil, func() {}
	}
	var mu sync.Mutex
	var bar *progressbar.ProgressBar
	var stage string
	over := false
	out := &lateWriter{a.err, time.Now().Add(progressDelay)}
	report = func(s sidecar.Step) {
		mu.Lock()
		defer mu.Unlock()
		if over {
			return
		}
		total := s.Total
		if total <= 0 {
			total = -1
		}
		if bar == nil || stage != s.Stage {
			if bar != nil {
				bar.Clear()
			}
			stage = s.Stage
			bar = progressbar.NewOptions64(total,
				progressbar.OptionSetWriter(out),
				progressbar.OptionSetDescription(s.Stage),
				progressbar.OptionShowBytes(s.Bytes),
				progressbar.OptionShowCount(),
				progressbar.OptionShowIts(),
				progressbar.OptionSetItsString("files"),
				progressbar.OptionUseIECUnits(true),
				progressbar.OptionSetPredictTime(true),
				progressbar.OptionThrottle(100*time.Millisecond),
				progressbar.OptionSetSpinnerChangeInterval(0), // no painting between steps: the terminal may be the program's by then
				progressbar.OptionFullWidth(),
				progressbar.OptionEnableColorCodes(a.errColour),
				progressbar.OptionClearOnFinish(),
			)
		}
		if total != bar.GetMax64() {
			bar.ChangeMax64(total)
		}
		bar.Set64(s.Done)
	}
	return report, func() {
		mu.Lock()
		defer mu.Unlock()
		over = true
		if bar != nil {
			bar.Clear()
			bar = nil
		}
	}
}

// lateWriter drops what comes before a moment, so that a bar counts from the beginning and is seen only if it takes long.
type lateWriter struct {
	to   io.Writer
	from time.Time
}

func (w *lateWriter) Write(p []byte) (int, error) {
	if time.Now().Before(w.from) {
		return len(p), nil
	}
	return w.to.Write(p)
}
