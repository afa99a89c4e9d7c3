// Package pgproxy stands between a client and a PostgreSQL, reads every message of the wire protocol that passes either
// way, and asks a test before it forwards one what shall become of it.
//
//	proxy := pgproxy.Start(config.ConnConfig, func(m pgproxy.Message) pgproxy.Action { … })
//	defer proxy.Close()
//	proxy.Redirect(config.ConnConfig)
//
// It refuses encryption, as a server without it does, and passes everything else on: log-in, the simple and the extended
// protocol, pipelines, COPY, notifications and requests to cancel.
package pgproxy

import (
	"fmt"
	"net"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// An Action is what becomes of a message.
type Action int

const (
	// Forward passes it on.
	Forward Action = iota

	// Cut closes both sides of the connection at once. The message is not forwarded.
	Cut

	// Unheard passes on what the client has sent and still sends, until the server waits for the client again, and nothing
	// of what the server answers; then it cuts. What the client asked for is done, and the client does not know.
	Unheard

	// Shut tells the client that the server ends the connection (FATAL, 57P01), and cuts. The message is not forwarded. It is
	// for moments in which the server has not named its process yet, which could else be ended.
	Shut
)

// A Proxy listens on the loopback.
type Proxy struct {
	network, address string // the server's
	hook             func(Message) Action
	listener         net.Listener
	running          sync.WaitGroup

	mu     sync.Mutex
	closed bool
	count  int
	open   map[*link]struct{}
}

// Start runs a proxy before the server that a configuration leads to. The hook is asked before each message; it is called
// from two goroutines for each connection, and the message waits while it runs. Start panics when it cannot listen.
func Start(server *pgx.ConnConfig, hook func(Message) Action) *Proxy {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(fmt.Sprintf("pgproxy: cannot listen on the loopback: %v", err))
	}
	p := &Proxy{hook: hook, listener: listener, open: make(map[*link]struct{})}
	p.network, p.address = pgconn.NetworkAddress(server.Host, server.Port)
	p.running.Go(p.accept)
	return p
}

// Redirect has connections made with a configuration go through the proxy, without encryption.
func (p *Proxy) Redirect(config *pgx.ConnConfig) {
	address := p.listener.Addr().(*net.TCPAddr)
	config.Host, config.Port = address.IP.String(), uint16(address.Port)
	config.TLSConfig, config.Fallbacks = nil, nil
}

// Open is the number of connections that pass through it now.
func (p *Proxy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.open)
}

// Close cuts every connection, lets no new one in, and returns when no hook runs any more.
func (p *Proxy) Close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for l := range p.open {
		l.cut()
	}
	p.mu.Unlock()
	p.running.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.running.Go(func() { p.carry(client) })
	}
}

// carry carries one connection until it ends.
func (p *Proxy) carry(client net.Conn) {
	server, err := net.Dial(p.network, p.address)
	if err != nil {
		_ = client.Close() // as if nobody listened
		return
	}
	l := p.link(client, server)
	if l == nil {
		return
	}
	l.run()
	l.cut()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, l)
}

// link takes a connection in; nil once the proxy is closed.
func (p *Proxy) link(client, server net.Conn) *link {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count++
	l := newLink(p.count, client, server, p.hook)
	if p.closed {
		l.cut()
		return nil
	}
	p.open[l] = struct{}{}
	return l
}
