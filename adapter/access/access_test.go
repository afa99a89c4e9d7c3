package access

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestATokenComesBackFromItsLine(t *testing.T) {
	t.Parallel()
	for _, role := range Roles {
		want := Token{Name: "jane@example", Role: role, Merchant: "acme"}
		text, line, err := New(want)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(line, text) {
			t.Error("the line holds the token")
		}
		tokens, err := Read(strings.NewReader("# tokens\n\n" + line + " # hers\n"))
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := tokens.Find(text); !ok || got != want {
			t.Errorf("found %+v, %v", got, ok)
		}
		if _, ok := tokens.Find(text[1:]); ok {
			t.Error("a part of the token is taken")
		}
	}
}

func TestLinesThatAreNone(t *testing.T) {
	t.Parallel()
	_, line, err := New(Token{Name: "jane", Role: Viewer})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"jane", "jane viewer", "jane owner " + strings.Repeat("0", 64), "jane viewer keytill_viewer_abc", line + "\n" + line,
		"ja/ne viewer " + strings.Repeat("0", 64), line + " acme more"} {
		if _, err := Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), "line ") || strings.Contains(err.Error(), "keytill_viewer") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestWhoMayDoWhat(t *testing.T) {
	t.Parallel()
	may := map[Role]string{Viewer: "viewer", Support: "viewer support", Storefront: "storefront", Verify: "verify", Admin: "viewer support admin storefront verify"}
	for _, role := range Roles {
		for _, need := range Roles {
			if want := strings.Contains(" "+may[role]+" ", " "+string(need)+" "); role.May(need) != want {
				t.Errorf("%s may %s: %v", role, need, !want)
			}
		}
	}
}

func TestRequestsWithoutTheRightToken(t *testing.T) {
	t.Parallel()
	text, line, err := New(Token{Name: "server", Role: Verify})
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := Read(strings.NewReader(line))
	if err != nil {
		t.Fatal(err)
	}
	inside := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(Of(r.Context()).Name)) })
	for _, c := range []struct {
		header string
		need   Role
		status int
	}{{"", Verify, 401}, {"Bearer ", Verify, 401}, {"Bearer nonsense", Verify, 401}, {"Basic " + text, Verify, 401}, {text, Verify, 401},
		{"Bearer " + text, Support, 403}, {"Bearer " + text, Verify, 200}, {"bearer  " + text, Verify, 200}} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Authorization", c.header)
		w := httptest.NewRecorder()
		tokens.Require(c.need, inside).ServeHTTP(w, r)
		if w.Code != c.status || (c.status == 200) != (w.Body.String() == "server") {
			t.Errorf("%q for %s: %d %s", c.header, c.need, w.Code, w.Body)
		}
	}
}
