package access

import "strings"

// Address is what a role sees of a buyer's address: a viewer enough to recognize one that they know.
func (r Role) Address(address string) string {
	if r != Viewer {
		return address
	}
	name, domain, ok := strings.Cut(address, "@")
	if !ok || name == "" {
		return ""
	}
	return string([]rune(name)[0]) + "•••@" + domain
}
