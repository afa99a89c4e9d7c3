package security

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

// asked are the requirements of levels 1 and 2 of ASVS 5.0.0: sections, and the numbers in each.
const asked = `
1.1:1-2 1.2:1-9 1.3:1-11 1.4:1-3 1.5:1-2
2.1:1-3 2.2:1-3 2.3:1-4 2.4:1
3.2:1-2 3.3:1-4 3.4:1-6 3.5:1-5 3.7:1-2
4.1:1-3 4.2:1 4.3:1-2 4.4:1-4
5.1:1 5.2:1-3 5.3:1-2 5.4:1-3
6.1:1-3 6.2:1-12 6.3:1-4 6.4:1-4 6.5:1-5 6.6:1-3 6.8:1-4
7.1:1-3 7.2:1-4 7.3:1-2 7.4:1-5 7.5:1-2 7.6:1-2
8.1:1-2 8.2:1-3 8.3:1 8.4:1
9.1:1-3 9.2:1-4
10.1:1-2 10.2:1-2 10.3:1-4 10.4:1-11 10.5:1-5 10.6:1-2 10.7:1-3
11.1:1-2 11.2:1-3 11.3:1-3 11.4:1-4 11.5:1 11.6:1
12.1:1-3 12.2:1-2 12.3:1-4
13.1:1 13.2:1-5 13.3:1-2 13.4:1-5
14.1:1-2 14.2:1-4 14.3:1-3
15.1:1-3 15.2:1-3 15.3:1-7
16.1:1 16.2:1-5 16.3:1-4 16.4:1-3 16.5:1-3
17.1:1 17.2:1-4 17.3:1-2`

// numbers are those of "1.2:1-9", or of a cell such as "V1.2.1–V1.2.3, V1.4.1".
func numbers(t *testing.T, section, first, last string) (all []string) {
	t.Helper()
	from, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err)
	}
	to := from
	if last != "" {
		if to, err = strconv.Atoi(last); err != nil || to <= from {
			t.Fatalf("%s.%s to %s: %v", section, first, last, err)
		}
	}
	for n := from; n <= to; n++ {
		all = append(all, fmt.Sprintf("%s.%d", section, n))
	}
	return all
}

// A row is a line of the table.
type row struct {
	numbers              []string
	asks, status, answer string
}

var (
	askedForm  = regexp.MustCompile(`(\d+\.\d+):(\d+)(?:-(\d+))?`)
	numberForm = regexp.MustCompile(`V(\d+\.\d+)\.(\d+)(?:–V(\d+\.\d+)\.(\d+))?`)
	quoted     = regexp.MustCompile("`([^`]+)`")
	testForm   = regexp.MustCompile(`^([\w/-]+)\.((?:Test|Fuzz)\w+)$`)
	fileForm   = regexp.MustCompile(`^([\w./-]+\.(?:go|sql|html|js|md)|\.ci/\w+)(?:#(.+))?$`)
)

func table(t *testing.T) (rows []row) {
	t.Helper()
	text, err := os.ReadFile("ASVS.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if !strings.HasPrefix(line, "| V") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if len(cells) == 3 && strings.HasSuffix(line, "| n/a | |") {
			cells = append(cells, "")
		}
		if len(cells) != 4 {
			t.Fatalf("a row of %d cells: %s", len(cells), line)
		}
		r := row{asks: cells[1], status: cells[2], answer: cells[3]}
		for _, m := range numberForm.FindAllStringSubmatch(cells[0], -1) {
			if m[3] != "" && m[3] != m[1] {
				t.Fatalf("a range over two sections: %s", cells[0])
			}
			r.numbers = append(r.numbers, numbers(t, m[1], m[2], m[4])...)
		}
		rows = append(rows, r)
	}
	return rows
}

func TestEveryRequirementHasAnAnswer(t *testing.T) {
	t.Parallel()
	var want, got []string
	for _, m := range askedForm.FindAllStringSubmatch(asked, -1) {
		want = append(want, numbers(t, m[1], m[2], m[3])...)
	}
	for _, r := range table(t) {
		got = append(got, r.numbers...)
		if len(r.numbers) == 0 || len(r.asks) < 3 {
			t.Errorf("a row says nothing: %+v", r)
		}
	}
	for _, n := range want {
		if c := count(got, n); c != 1 {
			t.Errorf("V%s is there %d times", n, c)
		}
	}
	for _, n := range got {
		if !slices.Contains(want, n) {
			t.Errorf("V%s is no requirement of level 1 or 2", n)
		}
	}
}

func count(all []string, one string) (n int) {
	for _, s := range all {
		if s == one {
			n++
		}
	}
	return n
}

// What is met names what meets it, and what is not says what is missing. Every name is that of something.
func TestEveryAnswerNamesWhatIsThere(t *testing.T) {
	t.Parallel()
	for _, r := range table(t) {
		named := 0
		for _, m := range quoted.FindAllStringSubmatch(r.answer, -1) {
			isName, problem := look(m[1])
			if isName {
				named++
			}
			if problem != "" {
				t.Errorf("V%s: %s", r.numbers[0], problem)
			}
		}
		switch r.status {
		case "met":
			if named == 0 && !bare[r.numbers[0]] {
				t.Errorf("V%s is said to be met and names nothing", r.numbers[0])
			}
		case "partly", "gap", "operator":
			if len(r.answer) < 40 {
				t.Errorf("V%s does not say why not: %s", r.numbers[0], r.answer)
			}
		case "n/a":
		default:
			t.Errorf("V%s is %q", r.numbers[0], r.status)
		}
	}
}

// bare are met by what is not there, of which there is nothing to name.
var bare = map[string]bool{"4.1.2": true, "11.6.1": true}

// look looks for what a quoted text names: a test, or a file and a text in it. Other texts name nothing.
func look(name string) (isName bool, problem string) {
	if m := testForm.FindStringSubmatch(name); m != nil {
		files, err := filepath.Glob(filepath.Join(root, m[1], "*_test.go"))
		if err != nil {
			return true, err.Error()
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return true, err.Error()
			}
			if strings.Contains(string(text), "\nfunc "+m[2]+"(") {
				return true, ""
			}
		}
		return true, "there is no test " + name
	}
	m := fileForm.FindStringSubmatch(name)
	if m == nil {
		return false, ""
	}
	text, err := os.ReadFile(filepath.Join(root, m[1]))
	switch {
	case err != nil:
		return true, err.Error()
	case !strings.Contains(string(text), m[2]):
		return true, fmt.Sprintf("%s does not hold %q", m[1], m[2])
	}
	return true, ""
}
