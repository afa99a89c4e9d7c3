package stripefake

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// A call is one request on its way to an answer.
type call struct {
	s       *Server
	method  string
	path    string
	params  url.Values
	realm   realm
	key     string // the API key
	idem    string // Idempotency-Key
	version string
	id      string // of the path
	fault   *Fault
	request string // Request-Id
}

// An answer is what will be written; its value may be shared with the store
// and is only read.
type answer struct {
	status int
	value  map[string]any
	body   []byte // in place of value
	header http.Header
}

// maxBody is more than any call of the API needs.
const maxBody = 1 << 20

// ServeHTTP answers a call of Stripe's API.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		panic(http.ErrAbortHandler) // the client is gone, or sends what Stripe would not read
	}
	var asked *Fault
	if s.cfg.OnRequest != nil {
		asked = s.cfg.OnRequest(r)
	}
	a, fault, hold := s.accept(r, body, asked)
	if hold != nil {
		close(hold.held)
		select {
		case <-hold.letGo:
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		case <-s.done:
			panic(http.ErrAbortHandler)
		}
	}
	wait := fault.Delay
	if a.value["object"] == "list" {
		wait += s.cfg.PageCost
	}
	if !s.wait(r.Context(), wait) {
		panic(http.ErrAbortHandler)
	}
	if fault.Hang {
		s.hang(r)
	}
	if fault.Reset {
		reset(w)
	}
	a.write(w, fault)
	if fault.Stall {
		s.hang(r)
	}
}

// hang ends with the client's patience, and answers nothing.
func (s *Server) hang(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-s.done:
	}
	panic(http.ErrAbortHandler)
}

// reset ends the connection in the way that a host does that knows nothing of it: the client reads "connection reset".
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // HTTP/2: it ends the stream
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
	panic(http.ErrAbortHandler)
}

// accept computes the answer as of now.
func (s *Server) accept(r *http.Request, body []byte, fault *Fault) (answer, Fault, *Hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := r.URL.Path
	s.calls[path]++
	if fault == nil || fault.harmless() || !strings.HasPrefix(path, fault.Path) {
		fault = s.nextFault(path)
	}
	if fault == nil {
		fault = &Fault{}
	}
	s.ids++
	c := &call{s: s, method: r.Method, path: path, fault: fault, request: fmt.Sprintf("req_fake%012d", s.ids)}
	fails := fault.Status != 0 || fault.Hang
	var a answer
	if !fails || fault.AfterEffect {
		a = c.answer(r, body)
	}
	if fault.Status != 0 {
		e := failure(fault.Status)
		a = answer{status: e.status, value: e.body(c.request, c.realm.live)}
	}
	if a.header == nil {
		a.header = http.Header{}
	}
	a.header.Set("Request-Id", c.request)
	if c.version != "" {
		a.header.Set("Stripe-Version", c.version)
	}
	if c.realm.account != "" {
		a.header.Set("Stripe-Account", c.realm.account)
	}
	return a, *fault, s.nextHold(path)
}

func (a answer) write(w http.ResponseWriter, f Fault) {
	body := a.body
	if body == nil {
		var err error
		if body, err = encode(a.value, false); err != nil {
			panic(err) // the store holds nothing but JSON values
		}
	}
	if f.Rewrite != nil {
		body = f.Rewrite(body)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-cache, no-store")
	for k, v := range a.header {
		h[k] = v
	}
	for k, v := range f.Header {
		h[http.CanonicalHeaderKey(k)] = v
	}
	h.Set("Content-Length", fmt.Sprint(len(body)))
	w.WriteHeader(a.status)
	if f.Cut || f.Stall {
		_, _ = w.Write(body[:len(body)/2])
		_ = http.NewResponseController(w).Flush()
		if f.Cut {
			panic(http.ErrAbortHandler)
		}
		return
	}
	_, _ = w.Write(body) // a client that is gone misses nothing
}

// encode writes JSON as Stripe does, with <, > and & as they are.
func encode(v any, indent bool) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if indent {
		e.SetIndent("", "  ")
	}
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
