package stripefake

import (
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stripe/stripe-go/v76"
)

// Config says how the fake behaves. The zero value is a test-mode account with
// one key and two webhook secrets.
type Config struct {
	// APIKeys are the keys it takes: sk_test_keytill unless said otherwise, or
	// sk_live_keytill with Livemode. A key that begins with sk_live_ or
	// rk_live_ sees live objects only, any other only test objects.
	APIKeys []string

	// WebhookSecrets sign events, the first one unless an event says which.
	// Two unless said otherwise, as during a rotation.
	WebhookSecrets []string

	// Account is the platform's own id.
	Account string

	// Livemode is the mode of objects that do not say theirs.
	Livemode bool

	// Now is the clock, time.Now unless set. It is called under the server's
	// lock and must not call the server.
	Now func() time.Time

	// PageCost is how long each list answer takes.
	PageCost time.Duration

	// OnRequest, if set, is asked before each call what shall go wrong with
	// it; nil is nothing. It may be called at the same time from several
	// connections.
	OnRequest func(*http.Request) *Fault
}

// A Server is a fake of Stripe. All its methods may be called at any time from
// several goroutines.
type Server struct {
	cfg    Config
	url    string
	client *http.Client  // delivers events
	done   chan struct{} // closed by Close; ends hanging calls
	close  func()

	mu     sync.Mutex
	store  *store
	faults []*failing
	holds  []*Hold
	calls  map[string]int
	idem   map[idemKey]idemAnswer
	ids    int64
}

// New makes a fake that listens nowhere: it is an http.Handler. Close it all
// the same, so that hanging calls end.
func New(cfg Config) *Server {
	if len(cfg.APIKeys) == 0 {
		cfg.APIKeys = []string{"sk_test_keytill"}
		if cfg.Livemode {
			cfg.APIKeys = []string{"sk_live_keytill"}
		}
	}
	if len(cfg.WebhookSecrets) == 0 {
		cfg.WebhookSecrets = []string{"whsec_one_0123456789abcdef0123456789abcdef", "whsec_two_0123456789abcdef0123456789abcdef"}
	}
	if cfg.Account == "" {
		cfg.Account = "acct_keytill"
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	transport := &http.Transport{MaxIdleConns: 256, MaxIdleConnsPerHost: 256}
	s := &Server{
		cfg:   cfg,
		done:  make(chan struct{}),
		store: newStore(),
		calls: map[string]int{},
		idem:  map[idemKey]idemAnswer{},
		client: &http.Client{
			Transport: transport,
			Timeout:   20 * time.Second,
			// A redirect is a failed delivery to Stripe.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	s.close = sync.OnceFunc(func() {
		close(s.done)
		transport.CloseIdleConnections()
	})
	own := s.make(accountKind, realm{}, cfg.Account)
	if err := s.store.add(own); err != nil {
		panic(err) // the store is empty
	}
	return s
}

// Start makes a fake that listens on a free port of the loopback interface. It
// panics when there is none.
func Start(cfg Config) *Server {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic("stripefake: " + err.Error())
	}
	s := New(cfg)
	s.url = "http://" + l.Addr().String()
	srv := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	var serving sync.WaitGroup
	serving.Go(func() { _ = srv.Serve(l) }) // ends with ErrServerClosed
	end := s.close
	s.close = sync.OnceFunc(func() {
		end()
		_ = srv.Close() // a listener closed twice is no trouble
		serving.Wait()
	})
	return s
}

// Close stops it: hanging and held calls end unanswered.
func (s *Server) Close() { s.close() }

// URL is where it listens, without a slash at the end; empty unless started.
func (s *Server) URL() string { return s.url }

// APIKey is the first key it takes.
func (s *Server) APIKey() string { return s.cfg.APIKeys[0] }

// Secrets are the webhook secrets.
func (s *Server) Secrets() []string { return slices.Clone(s.cfg.WebhookSecrets) }

func (s *Server) now() time.Time { return s.cfg.Now() }

func liveKey(key string) bool {
	return strings.HasPrefix(key, "sk_live_") || strings.HasPrefix(key, "rk_live_")
}

// apiVersion is the version objects are shown in, whatever a caller asks for.
const apiVersion = stripe.APIVersion
