package integration_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
)

// A cutter knows every connection of one keytill, so that killing it can end them all at once, as the kernel does.
type cutter struct {
	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]struct{}
}

var errCut = errors.New("this keytill was killed")

// add takes a connection in; once cut, it closes it instead.
func (c *cutter) add(conn net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		_ = conn.Close()
		return false
	}
	if c.conns == nil {
		c.conns = make(map[net.Conn]struct{})
	}
	c.conns[conn] = struct{}{}
	return true
}

func (c *cutter) remove(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.conns, conn)
}

// end closes every connection and lets no new one come.
func (c *cutter) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = true
	for conn := range c.conns {
		_ = conn.Close()
	}
}

// dial is for what can be told how to dial.
func (c *cutter) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	if !c.add(conn) {
		return nil, errCut
	}
	return cuttable{conn, c}, nil
}

type cuttable struct {
	net.Conn
	cutter *cutter
}

// Close closes the connection and forgets it.
func (c cuttable) Close() error {
	c.cutter.remove(c.Conn)
	return c.Conn.Close()
}

// A wire leads from a loopback port to an address, for what cannot be told how to dial: keytill's way to Stripe, the mail
// server and the storefront. A keytill that was killed would else go on calling them.
type wire struct {
	listener net.Listener
	target   string
	cutter   *cutter
	running  sync.WaitGroup
}

func newWire(target string, cutter *cutter) (*wire, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &wire{listener: listener, target: target, cutter: cutter}
	w.running.Go(w.accept)
	return w, nil
}

func (w *wire) addr() string { return w.listener.Addr().String() }

func (w *wire) accept() {
	for {
		conn, err := w.listener.Accept()
		if err != nil {
			return // closed
		}
		w.running.Go(func() { w.carry(conn) })
	}
}

// carry carries bytes both ways until either side closes.
func (w *wire) carry(near net.Conn) {
	far, err := net.Dial("tcp", w.target)
	if err != nil {
		_ = near.Close()
		return
	}
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
		if !w.cutter.add(way[0]) {
			_ = way[1].Close()
			continue
		}
		both.Go(func() {
			_, _ = io.Copy(way[1], way[0]) // however it ends, the connection is over
			_ = way[0].Close()
			_ = way[1].Close()
			w.cutter.remove(way[0])
		})
	}
	both.Wait()
}

// close ends the wire, once its cutter has ended its connections.
func (w *wire) close() {
	_ = w.listener.Close()
	w.running.Wait()
}
