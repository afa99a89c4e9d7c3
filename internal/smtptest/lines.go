package smtptest

import (
	"net"
	"sync"
)

// lines is a listener that can cut every connection it took. The SMTP server's own Close misses a listener that Serve
// has not seen yet, and a connection it has just accepted.
type lines struct {
	net.Listener

	mu     sync.Mutex
	closed bool
	open   map[net.Conn]bool
}

// line is one connection; it is forgotten when it closes.
type line struct {
	net.Conn
	of *lines
}

func (l *lines) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	l.open[conn] = true
	return &line{Conn: conn, of: l}, nil
}

func (l *line) Close() error {
	l.of.mu.Lock()
	delete(l.of.open, l.Conn)
	l.of.mu.Unlock()
	return l.Conn.Close()
}

// cut closes the listener and every connection.
func (l *lines) cut() {
	_ = l.Listener.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for conn := range l.open {
		_ = conn.Close()
	}
}
