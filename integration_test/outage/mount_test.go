package outage_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/keytill/keytill/internal/pgserver"
)

// mayMount reports whether this process may mount file systems. Where it may not, the long form fails, and the short one
// says what it could not do.
func mayMount(t testing.TB, programs ...string) bool {
	t.Helper()
	for _, program := range append([]string{"mount", "umount"}, programs...) {
		if _, err := exec.LookPath(program); err != nil && os.Geteuid() == 0 {
			t.Fatalf("%v: apt-get install mount e2fsprogs brings it", err)
		}
	}
	problem := "only root may"
	if os.Geteuid() == 0 {
		dir := t.TempDir()
		out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=1m", "keytill-outage", dir).CombinedOutput()
		if err == nil {
			run(t, "umount", dir)
			return true
		}
		problem = fmt.Sprintf("%v: %s", err, bytes.TrimSpace(out))
	}
	if *long {
		t.Fatalf("this test mounts a small file system, which does not work here: %s. Run it as root, in no container or a privileged one", problem)
	}
	t.Logf("NOT TESTED: this test mounts a small file system, which does not work here: %s", problem)
	return false
}

// place makes a directory that PostgreSQL's account can reach, in memory if there is room.
func place(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp(pgserver.MemoryDir(), "keytill-outage-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// smallDisk mounts a file system of so many megabytes.
func smallDisk(t testing.TB, megabytes int) string {
	t.Helper()
	dir := place(t)
	run(t, "mount", "-t", "tmpfs", "-o", "mode=755,size="+strconv.Itoa(megabytes)+"m", "keytill-outage", dir)
	t.Cleanup(func() { run(t, "umount", dir) })
	return dir
}

// A disk is a file system in an image file, mounted by a loop device: what is in the file is on the disk, and what is not,
// is in the memory of a machine whose power may fail.
type disk struct {
	t       testing.TB
	image   string
	dir     string
	mounted bool
}

func newDisk(t testing.TB, megabytes int) *disk {
	t.Helper()
	files := place(t)
	d := &disk{t: t, image: filepath.Join(files, "disk"), dir: filepath.Join(files, "mount")}
	file, err := os.Create(d.image)
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Truncate(int64(megabytes) << 20); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	run(t, "mkfs.ext4", "-q", "-F", "-m", "0", d.image)
	if err := os.Mkdir(d.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	d.mount()
	t.Cleanup(d.unmount)
	return d
}

// mount mounts the image. The file system writes by itself as late as it can: what is on the disk is what somebody waited
// for.
func (d *disk) mount() {
	d.t.Helper()
	run(d.t, "mount", "-o", "loop,noatime,commit=300", d.image, d.dir)
	d.mounted = true
}

func (d *disk) unmount() {
	d.t.Helper()
	if d.mounted {
		d.mounted = false
		run(d.t, "umount", d.dir)
	}
}

// sync writes out all that the file system still holds in memory.
func (d *disk) sync() {
	d.t.Helper()
	run(d.t, "sync", "-f", d.dir)
}

// photograph copies the disk as it is. Nobody may write to the file system meanwhile.
func (d *disk) photograph() (picture string) {
	d.t.Helper()
	picture = d.image + ".copy"
	run(d.t, "cp", "--sparse=always", d.image, picture)
	return picture
}

// replace puts another disk in the place of this one, of which nothing remains.
func (d *disk) replace(image string) {
	d.t.Helper()
	d.unmount()
	if err := os.Rename(image, d.image); err != nil {
		d.t.Fatal(err)
	}
	d.mount()
}

func run(t testing.TB, program string, args ...string) {
	t.Helper()
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", program, args, err, out)
	}
}
