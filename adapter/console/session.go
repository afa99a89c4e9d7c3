package console

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/adapter/access"
	"github.com/keytill/keytill/adapter/limit"
	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/internal/logs"
)

const (
	// A session ends after a working day, and before that when nobody used it for a while.
	sessionLasts = 12 * time.Hour
	sessionIdle  = 2 * time.Hour

	// seenEvery is how often a session's last use is written down: not on every page.
	seenEvery = 5 * time.Minute
)

const (
	// Index: console_sessions_pkey.
	insertSession = `
INSERT INTO keytill.console_sessions (merchant_id, session_hash, token_hash, began_at, seen_at) VALUES ($1, $2, $3, $4, $4)`

	readSession = `
SELECT token_hash, seen_at FROM keytill.console_sessions
 WHERE merchant_id = $1 AND session_hash = $2 AND began_at > $3 AND seen_at > $4`

	touchSession = `UPDATE keytill.console_sessions SET seen_at = $3 WHERE merchant_id = $1 AND session_hash = $2`

	deleteSession = `DELETE FROM keytill.console_sessions WHERE merchant_id = $1 AND session_hash = $2`

	// Few rows: all that are logged in.
	deleteOldSessions = `DELETE FROM keytill.console_sessions WHERE merchant_id = $1 AND (began_at <= $2 OR seen_at <= $3)`
)

// A session names itself in its cookie: the merchant, by which its row is found, and a secret that only its hash is kept of.
type session struct {
	merchant, secret string
}

func (s session) hash() []byte {
	sum := sha256.Sum256([]byte(s.secret))
	return sum[:]
}

func (s session) String() string {
	return base64.RawURLEncoding.EncodeToString([]byte(s.merchant)) + "." + s.secret
}

func parseSession(text string) (session, bool) {
	name, secret, ok := strings.Cut(text, ".")
	merchant, err := base64.RawURLEncoding.DecodeString(name)
	return session{string(merchant), secret}, ok && err == nil && secret != ""
}

// cookieName has the prefix with which a browser takes the cookie from this very host and over https alone, so that no
// neighbouring host can set one.
func (c *Console) cookieName(r *http.Request) string {
	if c.secure(r) {
		return "__Host-keytill_console"
	}
	return "keytill_console"
}

func (c *Console) setCookie(w http.ResponseWriter, r *http.Request, value string, age time.Duration) {
	seconds := int(age / time.Second)
	if value == "" {
		seconds = -1
	}
	http.SetCookie(w, &http.Cookie{Name: c.cookieName(r), Value: value, Path: "/", MaxAge: seconds,
		HttpOnly: true, Secure: c.secure(r), SameSite: http.SameSiteLaxMode})
}

func (c *Console) sessionOf(r *http.Request) (session, bool) {
	cookie, err := r.Cookie(c.cookieName(r))
	if err != nil {
		return session{}, false
	}
	return parseSession(cookie.Value)
}

// who is who a request's session belongs to. The token decides anew each time: what was taken out of the tokens file is out.
func (c *Console) who(ctx context.Context, r *http.Request) (access.Token, bool, error) {
	s, ok := c.sessionOf(r)
	if !ok {
		return access.Token{}, false, nil
	}
	now := c.Now()
	var (
		hash []byte
		seen time.Time
	)
	err := c.DB.QueryRow(ctx, readSession, s.merchant, s.hash(), now.Add(-sessionLasts), now.Add(-sessionIdle)).Scan(&hash, &seen)
	if errors.Is(err, pgx.ErrNoRows) {
		return access.Token{}, false, nil
	}
	if err != nil {
		return access.Token{}, false, fmt.Errorf("read the session: %w", err)
	}
	if now.Sub(seen) > seenEvery {
		if _, err := c.DB.Exec(ctx, touchSession, s.merchant, s.hash(), now); err != nil {
			return access.Token{}, false, fmt.Errorf("note that the session is used: %w", err)
		}
	}
	if len(hash) != sha256.Size {
		return access.Token{}, false, nil
	}
	token, known := c.Tokens.FindHash([sha256.Size]byte(hash))
	return token, known && token.Merchant == s.merchant && token.Role.May(access.Viewer), nil
}

// known serves a page to who is logged in and may see it.
func (c *Console) known(need access.Role, serve func(*visit) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, ok, err := c.who(r.Context(), r)
		v := &visit{console: c, w: w, r: r, ctx: r.Context(), who: token}
		logs.Note(v.ctx, "token", token.Name)
		switch {
		case err != nil:
			c.fail(v, err)
		case !ok:
			target := Path + "/login"
			if r.Method == http.MethodGet && r.URL.Path != Path {
				target += "?next=" + url.QueryEscape(r.URL.RequestURI())
			}
			redirect(w, r, target)
		case !token.Role.May(need):
			c.refuse(w, r, v, http.StatusForbidden, "A token of role "+string(token.Role)+" may not do this; one of role "+string(need)+" may.")
		default:
			if err = readForm(w, r); err == nil {
				err = serve(v)
			}
			if err != nil {
				c.fail(v, err)
			}
		}
	})
}

type loginPage struct {
	Next    string
	Problem string
}

func (c *Console) showLogin(w http.ResponseWriter, r *http.Request) {
	next := inside(r.FormValue("next"))
	if _, ok, err := c.who(r.Context(), r); err == nil && ok {
		redirect(w, r, next)
		return
	}
	c.render(w, r, http.StatusOK, "login", view{Title: "Log in", Page: loginPage{Next: next}})
}

const maxLogin = 4 << 10

func (c *Console) login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxLogin)
	next := inside(r.PostFormValue("next"))
	problem := func(status int, text string) {
		c.render(w, r, status, "login", view{Title: "Log in", Page: loginPage{Next: next, Problem: text}})
	}
	client := limit.Client(r)
	if !c.logins.Allow(client) {
		w.Header().Set("Retry-After", "60")
		problem(http.StatusTooManyRequests, "Too many tries. Wait a minute, then try again.")
		return
	}
	text := strings.TrimSpace(r.PostFormValue("token"))
	token, ok := c.Tokens.Find(text)
	switch {
	case !ok:
		c.Logger.WarnContext(r.Context(), "a log-in to the console failed", "client", client)
		problem(http.StatusUnauthorized, "No such token. Check that you copied all of it.")
		return
	case !token.Role.May(access.Viewer):
		problem(http.StatusForbidden, "A token of role "+string(token.Role)+" is for programs. The console takes viewer, support and admin.")
		return
	}
	if err := c.begin(r, w, token, text); err != nil {
		c.Logger.ErrorContext(r.Context(), "a session could not be begun", "error", err)
		problem(http.StatusServiceUnavailable, internalProblem)
		return
	}
	redirect(w, r, next)
}

// begin begins a session with a new secret, whatever cookie the browser came with: that one's session ends.
func (c *Console) begin(r *http.Request, w http.ResponseWriter, token access.Token, text string) error {
	ctx, now, hash := r.Context(), c.Now(), access.Hash(text)
	s := session{merchant: token.Merchant, secret: rand.Text() + rand.Text()}
	batch := &pgx.Batch{}
	if old, ok := c.sessionOf(r); ok {
		batch.Queue(deleteSession, old.merchant, old.hash())
	}
	batch.Queue(deleteOldSessions, token.Merchant, now.Add(-sessionLasts), now.Add(-sessionIdle))
	batch.Queue(insertSession, s.merchant, s.hash(), hash[:], now)
	if err := c.DB.SendBatch(ctx, batch).Close(); err != nil {
		return err
	}
	if err := fulfillment.Record(ctx, c.DB, token.Merchant, fulfillment.Act{At: now, Actor: token.Name, Action: "log in", Subject: "console"}); err != nil {
		return err
	}
	c.setCookie(w, r, s.String(), sessionLasts)
	return nil
}

func (c *Console) logout(w http.ResponseWriter, r *http.Request) {
	if s, ok := c.sessionOf(r); ok {
		if _, err := c.DB.Exec(r.Context(), deleteSession, s.merchant, s.hash()); err != nil {
			c.Logger.ErrorContext(r.Context(), "a session could not be ended", "error", err)
			c.refuse(w, r, nil, http.StatusServiceUnavailable, "You are still logged in: the database did not answer. Try again.")
			return
		}
	}
	c.setCookie(w, r, "", 0)
	redirect(w, r, Path+"/login")
}
