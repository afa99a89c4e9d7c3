package orderpage

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"net/url"
	"strings"
	"time"
)

// Links makes and reads links to buyers' pages. A link names the order and is signed, so nobody makes one but who has the
// keyset; it ends by itself, and when the order's serial is raised.
type Links struct {
	base    string
	secrets [][]byte
	lasts   time.Duration
	now     func() time.Time
}

// Path is where the pages are, below the shop's public URL.
const Path = "/orders/"

// NewLinks makes Links below a public URL, https://keys.example.com. Secrets are those of inventory.Keyset.Derive.
func NewLinks(publicURL string, secrets [][]byte, lasts time.Duration, now func() time.Time) (*Links, error) {
	u, err := url.Parse(publicURL)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return nil, errors.New("the public URL cannot be read: write https://keys.example.com, where buyers reach keytill")
	}
	return &Links{base: strings.TrimSuffix(publicURL, "/"), secrets: secrets, lasts: lasts, now: now}, nil
}

// A Ref is what a link names.
type Ref struct {
	Merchant, Order string
	Serial          int
}

// Layout of a link's bytes: version, expiry in Unix seconds, serial, length of the merchant, merchant, order, signature.
const (
	version  = 1
	headSize = 1 + 4 + 4 + 1
	macSize  = 16
)

var encoding = base64.RawURLEncoding

// URL is a link that lasts from a time on. A second mail about the same delivery has the same link.
func (l *Links) URL(ref Ref, from time.Time) string {
	b := make([]byte, 0, headSize+len(ref.Merchant)+len(ref.Order)+macSize)
	b = append(b, version)
	b = binary.BigEndian.AppendUint32(b, uint32(from.Add(l.lasts).Unix()))
	b = binary.BigEndian.AppendUint32(b, uint32(ref.Serial))
	b = append(b, byte(len(ref.Merchant)))
	b = append(append(b, ref.Merchant...), ref.Order...)
	return l.base + Path + encoding.EncodeToString(append(b, sign(l.secrets[0], b)...))
}

func sign(secret, text []byte) []byte {
	mac := hmac.New(sha256.New, secret)
	mac.Write(text)
	return mac.Sum(nil)[:macSize]
}

// maxToken is longer than any that URL makes.
const maxToken = 1000

// read returns what a link names if it is one of ours that has not ended.
func (l *Links) read(token string) (Ref, bool) {
	if len(token) > maxToken {
		return Ref{}, false
	}
	b, err := encoding.DecodeString(token)
	if err != nil || len(b) < headSize+macSize {
		return Ref{}, false
	}
	text, mac := b[:len(b)-macSize], b[len(b)-macSize:]
	genuine := false
	for _, secret := range l.secrets {
		genuine = hmac.Equal(mac, sign(secret, text)) || genuine
	}
	rest := text[headSize:]
	merchant := int(text[headSize-1])
	if !genuine || text[0] != version || merchant > len(rest) {
		return Ref{}, false
	}
	ends := time.Unix(int64(binary.BigEndian.Uint32(text[1:])), 0)
	return Ref{Merchant: string(rest[:merchant]), Order: string(rest[merchant:]), Serial: int(binary.BigEndian.Uint32(text[5:]))},
		l.now().Before(ends)
}
