// Package access says who may use the API and the console: tokens with roles, from a file that holds them hashed.
//
//	# name            role     SHA-256 of the token      merchant, if not the default one
//	licence-server    verify   5f3c…
//	jane              support  91ab…                     acme
//
// `keytill token new` prints a token once, and its line. A token is 256 random bits, so a plain hash of it can neither be
// reversed nor guessed, and finding it by that hash tells nothing by its timing.
package access

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/keytill/keytill/adapter/problem"
	"github.com/keytill/keytill/internal/logs"
	"github.com/keytill/keytill/inventory"
)

// Role is what a token may do.
type Role string

const (
	Viewer     Role = "viewer"     // look at orders and stock, never at keys
	Support    Role = "support"    // viewer, and send again, reveal, revoke, replace
	Admin      Role = "admin"      // everything
	Storefront Role = "storefront" // what a shop's server needs: settle, reserve, its orders
	Verify     Role = "verify"     // ask whether a key may be used
)

// Roles are all of them.
var Roles = []Role{Viewer, Support, Admin, Storefront, Verify}

// includes are the roles that a role has beside its own.
var includes = map[Role][]Role{Support: {Viewer}, Admin: Roles}

// May reports whether a role is allowed what another needs.
func (r Role) May(need Role) bool { return r == need || slices.Contains(includes[r], need) }

// A Token is who asks.
type Token struct {
	Name     string // for the audit and the log
	Role     Role
	Merchant string // whose stock and orders
}

// Tokens are all that are known.
type Tokens struct{ byHash map[[sha256.Size]byte]Token }

var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,62}$`)

// Read reads a file of tokens. Its errors name the line.
func Read(file io.Reader) (*Tokens, error) {
	tokens := &Tokens{byHash: make(map[[sha256.Size]byte]Token)}
	lines := bufio.NewScanner(file)
	for number := 1; lines.Scan(); number++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		words := strings.Fields(text)
		if len(words) == 0 {
			continue
		}
		token, hash, err := parse(words)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if _, twice := tokens.byHash[hash]; twice {
			return nil, fmt.Errorf("line %d: this token is in the file already", number)
		}
		tokens.byHash[hash] = token
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the tokens: %w", err)
	}
	return tokens, nil
}

func parse(words []string) (token Token, hash [sha256.Size]byte, err error) {
	if len(words) < 3 || len(words) > 4 {
		return token, hash, errors.New("it must be a name, a role and a hash, as `keytill token new` prints it")
	}
	token = Token{Name: words[0], Role: Role(words[1]), Merchant: inventory.DefaultMerchant}
	if len(words) == 4 {
		token.Merchant = words[3]
	}
	sum, err := hex.DecodeString(words[2])
	switch {
	case !nameForm.MatchString(token.Name):
		return token, hash, errors.New("the name may have up to 63 letters, digits and . _ @ -")
	case !slices.Contains(Roles, token.Role):
		return token, hash, fmt.Errorf("%q is no role: %s", words[1], Roles)
	case err != nil || len(sum) != sha256.Size:
		return token, hash, errors.New("the hash is not 64 hexadecimal digits; a token itself does not belong here")
	}
	return token, [sha256.Size]byte(sum), nil
}

// prefix shows what a token is, to people and to programs that look for secrets that leaked.
const prefix = "keytill_"

// New makes a token, and its line for the file.
func New(t Token) (text, line string, err error) {
	var random [32]byte
	_, _ = rand.Read(random[:]) // never fails, says its documentation
	text = prefix + string(t.Role) + "_" + base64.RawURLEncoding.EncodeToString(random[:])
	hash := sha256.Sum256([]byte(text))
	words := []string{t.Name, string(t.Role), hex.EncodeToString(hash[:])}
	if t.Merchant != "" && t.Merchant != inventory.DefaultMerchant {
		words = append(words, t.Merchant)
	}
	if _, _, err := parse(words); err != nil {
		return "", "", err
	}
	return text, strings.Join(words, " "), nil
}

// Find finds a token by its text.
func (t *Tokens) Find(text string) (Token, bool) {
	token, ok := t.byHash[sha256.Sum256([]byte(text))]
	return token, ok
}

// Hash is what the file has of a token's text.
func Hash(text string) [sha256.Size]byte { return sha256.Sum256([]byte(text)) }

// FindHash finds a token by its hash: whether one that was let in before still is.
func (t *Tokens) FindHash(hash [sha256.Size]byte) (Token, bool) {
	token, ok := t.byHash[hash]
	return token, ok
}

type contextKey struct{}

// Of is whose token a request came with, within Require.
func Of(ctx context.Context) Token {
	token, _ := ctx.Value(contextKey{}).(Token)
	return token
}

// Require lets requests through whose Authorization: Bearer token may do what the role needs.
func (t *Tokens) Require(need Role, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, text, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		token, known := t.Find(strings.TrimSpace(text))
		switch {
		case !strings.EqualFold(scheme, "Bearer") || !known:
			w.Header().Set("WWW-Authenticate", `Bearer realm="keytill"`)
			problem.Write(w, http.StatusUnauthorized, "unauthorized", "send a valid token as Authorization: Bearer …")
		case !token.Role.May(need):
			problem.Write(w, http.StatusForbidden, "forbidden", fmt.Sprintf("a token of role %s may not do this, one of role %s may", token.Role, need))
		default:
			logs.Note(r.Context(), "token", token.Name)
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), contextKey{}, token)))
		}
	})
}
