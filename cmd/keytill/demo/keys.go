package demo

import (
	"crypto/rand"
	"fmt"
	"regexp"
	"strings"
)

// keyMaker makes keys as a supplier would: random, and all of one run begin with the same group, by which any of them is
// found wherever it should not be.
type keyMaker struct {
	tag  string
	like *regexp.Regexp
	made map[string]bool
}

func newKeyMaker() keyMaker {
	tag := group()
	return keyMaker{tag: tag, like: regexp.MustCompile(tag + `(-[` + letters + `]{5}){3}`), made: make(map[string]bool)}
}

func (k keyMaker) make(n int) []string {
	texts := make([]string, 0, n)
	for len(texts) < n {
		text := strings.Join([]string{k.tag, group(), group(), group()}, "-")
		if !k.made[text] {
			k.made[text] = true
			texts = append(texts, text)
		}
	}
	return texts
}

// in finds every key in a text.
func (k keyMaker) in(text string) []string { return k.like.FindAllString(text, -1) }

// letters are those that nobody mistakes for another.
const letters = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"

func group() string {
	var b [5]byte
	_, _ = rand.Read(b[:]) // never fails, says its documentation
	for i := range b {
		b[i] = letters[int(b[i])%len(letters)]
	}
	return string(b[:])
}

// mask hides a key but for its last group.
func mask(text string) string {
	groups := strings.Split(text, "-")
	for i := range groups[:len(groups)-1] {
		groups[i] = strings.Repeat("•", len(groups[i]))
	}
	return strings.Join(groups, "-")
}

func plural[N int | int64](n N, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}
