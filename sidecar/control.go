package sidecar

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// A process that serves forks listens on a Unix socket in STORE/run and answers HTTP/1.1 there, for processes of the
// same store. One socket serves all forks of its process; who looks for a fork asks each socket (there are few) rather
// than finding a file per fork.
//
//	GET  /control                 -> Hello; the handshake
//	GET  /v1/forks                -> all ForkStatus
//	GET  /v1/forks/ID             -> ForkStatus
//	POST /v1/forks/ID/diff        DiffRequest -> ForkDiff
//	POST /v1/forks/ID/patch       RenderRequest -> a git-format patch
//	POST /v1/forks/ID/export      ExportRequest -> a tar stream, or nothing when a directory was named
//	POST /v1/forks/ID/seal        SealRequest -> SealReceipt
//	POST /v1/forks/ID/fork        ForkRequest -> the new forks
//	POST /v1/forks/ID/unserve     -> the fork is unmounted and closed
//
// Every request states its version in Tine-Control, and one that the server doesn't speak is refused before anything
// is done. Errors are controlError with a status of 4xx or 5xx. A client that goes away cancels its request.

// ControlVersion is the newest version of this protocol that this tine speaks, and ControlOldest the oldest.
const (
	ControlVersion = 1
	ControlOldest  = 1

	controlHeader = "Tine-Control"
	// controlMaxRequest bounds a request's body in bytes; requests are small options.
	controlMaxRequest = 1 << 20
)

// ErrControl is wrapped when a serving process can't be talked to: another version, a broken answer.
var ErrControl = errors.New("the serving process could not be asked")

// Hello is the handshake's answer.
type Hello struct {
	Protocol int      `json:"protocol"` // the newest that is spoken
	Oldest   int      `json:"oldest"`
	PID      int      `json:"pid"`
	Store    string   `json:"store"` // identity of the store: device and inode
	Forks    []string `json:"forks"` // full ids
}

// controlError is an error as it crosses the socket. Message is the full text: both ends belong to the host.
type controlError struct {
	Class   Class  `json:"class"`
	Code    string `json:"code"`
	Rule    string `json:"rule"`
	Summary string `json:"summary"`
	Token   string `json:"token"`
	Message string `json:"message"`
}

// RemoteError is what the serving process answered.
type RemoteError struct {
	Verdict Verdict
	Message string
}

func (e *RemoteError) Error() string { return e.Message }

func sendError(w http.ResponseWriter, status int, err error) {
	v := Judge(err)
	body, _ := json.Marshal(controlError{v.Class, v.Code, v.Rule, v.Summary, v.Token, err.Error()})
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(body)
}

func readError(resp *http.Response) error {
	var e controlError
	body := io.LimitReader(resp.Body, controlMaxRequest)
	if err := json.NewDecoder(body).Decode(&e); err != nil || e.Message == "" {
		return fmt.Errorf("%w: %s", ErrControl, resp.Status)
	}
	return &RemoteError{Verdict{e.Class, e.Code, e.Rule, e.Summary, e.Token}, e.Message}
}
