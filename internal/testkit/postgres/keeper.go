package postgres

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// keeper is the shell that runs a server in a folder while the pipe to it is open.
type keeper struct {
	dir  string
	port int
	cmd  *exec.Cmd
	line io.WriteCloser // closed: stop
	said *bufio.Scanner
}

// keep is the script of the shell. $1 is the folder of the programs, $2 the data folder, $3 the port. With $4
// and $5, the folder and port of another server, it runs a standby of that one. It prints "ready" or an error,
// after the start and after each command that it reads: restart or promote.
const keep = `
bin=$1 dir=$2 port=$3 primary=$4 primary_port=$5
trap 'rm -rf "$dir"' EXIT
if [ -n "$primary" ]; then
	"$bin/pg_basebackup" -D "$dir/data" -h "$primary" -p "$primary_port" -U postgres -c fast -R --no-sync >"$dir/initdb.log" 2>&1 ||
		{ cat "$dir/initdb.log"; exit 1; }
else
	"$bin/initdb" -D "$dir/data" -U postgres -A trust -E UTF8 --locale=C --no-sync >"$dir/initdb.log" 2>&1 ||
		{ cat "$dir/initdb.log"; exit 1; }
fi
# One line: pg_ctl hands the options to a shell, which would end the command at a line break.
options="-p $port -c listen_addresses=127.0.0.1 -c unix_socket_directories='$dir'"
options="$options -c fsync=off -c synchronous_commit=off -c full_page_writes=off -c max_connections=200"
"$bin/pg_ctl" -D "$dir/data" -w -t 60 -l "$dir/server.log" -o "$options" start >/dev/null 2>&1 ||
	{ cat "$dir/server.log"; exit 1; }
echo ready
while read -r order; do
	case $order in
	promote) "$bin/pg_ctl" -D "$dir/data" -w -t 60 promote >/dev/null 2>&1 ;;
	*) "$bin/pg_ctl" -D "$dir/data" -w -t 60 -m fast -l "$dir/server.log" restart >/dev/null 2>&1 ;;
	esac || { cat "$dir/server.log"; break; }
	echo ready
done
"$bin/pg_ctl" -D "$dir/data" -w -m immediate stop >/dev/null 2>&1
`

// attempts is how many ports are tried: a free one may be used by another program first.
const attempts = 3

// hireKeeper starts a server, or a standby of primary unless primary is nil.
func hireKeeper(primary *keeper) (*keeper, error) {
	bin, err := findPrograms("/usr/lib/postgresql/*/bin", exec.LookPath)
	if err != nil {
		return nil, err
	}
	var errs []error
	for range attempts {
		k, err := startKeeper(bin, primary)
		if err == nil {
			return k, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func startKeeper(bin string, primary *keeper) (*keeper, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "kedge-pg-")
	if err != nil {
		return nil, fmt.Errorf("making a folder for the server: %w", err)
	}
	k := &keeper{dir: dir, port: port}
	if err := k.start(bin, primary); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return k, nil
}

func (k *keeper) start(bin string, primary *keeper) error {
	credential, err := ownFolder(k.dir)
	if err != nil {
		return err
	}
	args := []string{"-c", keep, "keeper", bin, k.dir, strconv.Itoa(k.port)}
	if primary != nil {
		args = append(args, primary.dir, strconv.Itoa(primary.port))
	}
	k.cmd = exec.Command("/bin/sh", args...)
	k.cmd.Dir = k.dir
	k.cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}
	// A separate group: Ctrl-C in the terminal is for the tests, and their end stops the keeper.
	k.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential, Setpgid: true}
	if k.line, err = k.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := k.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := k.cmd.Start(); err != nil {
		return fmt.Errorf("starting a shell: %w", err)
	}
	k.said = bufio.NewScanner(out)
	return k.awaitReady()
}

// restart returns when the server accepts connections again.
func (k *keeper) restart() error { return k.order("restart") }

func (k *keeper) order(order string) error {
	if _, err := io.WriteString(k.line, order+"\n"); err != nil {
		return fmt.Errorf("telling the shell to %s: %w", order, err)
	}
	return k.awaitReady()
}

func (k *keeper) awaitReady() error {
	var said []string
	for k.said.Scan() {
		if k.said.Text() == "ready" {
			return nil
		}
		said = append(said, k.said.Text())
	}
	return errors.Join(fmt.Errorf("the server did not start: %s", strings.Join(said, "\n")), k.dismiss())
}

// dismiss ends the keeper, and the server with it, and waits for both.
func (k *keeper) dismiss() error {
	return errors.Join(k.line.Close(), k.cmd.Wait())
}

// ownFolder changes the owner of the folder to the user of the server. PostgreSQL refuses to run as root, so
// for root that is the user postgres; nil means the caller.
func ownFolder(dir string) (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL does not run as root and there is no user postgres; install the Debian package postgresql: %w", err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("parsing the id of user postgres: %w", err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("parsing the group of user postgres: %w", err)
	}
	if err := os.Chown(dir, int(uid), int(gid)); err != nil {
		return nil, fmt.Errorf("giving the folder to user postgres: %w", err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// findPrograms returns the folder of the newest PostgreSQL: the highest version that matches the glob, where
// Debian installs them, or otherwise that of the PATH.
func findPrograms(glob string, lookPath func(string) (string, error)) (string, error) {
	dirs, err := filepath.Glob(glob)
	if err != nil {
		return "", err
	}
	best, bestVersion := "", -1
	for _, dir := range dirs {
		version, err := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
		if err == nil && version > bestVersion && hasPrograms(dir) {
			best, bestVersion = dir, version
		}
	}
	if best != "" {
		return best, nil
	}
	if path, err := lookPath("initdb"); err == nil && hasPrograms(filepath.Dir(path)) {
		return filepath.Dir(path), nil
	}
	return "", fmt.Errorf("no PostgreSQL server is installed, neither as %s nor on the PATH: "+
		"install the Debian package postgresql (apt-get install postgresql)", glob)
}

func hasPrograms(dir string) bool {
	for _, name := range []string{"initdb", "pg_ctl", "postgres"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return false
		}
	}
	return true
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("finding a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
