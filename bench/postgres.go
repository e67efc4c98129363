package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// pgServer is a temporary PostgreSQL with default settings: unlike the one of the tests it uses fsync. A shell
// keeps it, and stops it and removes its files when the benchmark ends for any reason.
type pgServer struct {
	dir   string
	cmd   *exec.Cmd
	line  io.WriteCloser // every line starts the server; closed: stop
	said  *bufio.Scanner
	count int
}

const keepPostgres = `
bin=$1 dir=$2 server=
trap 'rm -rf "$dir"' EXIT
"$bin/initdb" -D "$dir/data" -U postgres -A trust -E UTF8 --locale=C >"$dir/initdb.log" 2>&1 || { cat "$dir/initdb.log"; exit 1; }
while read -r _; do
	# A child of this shell, which is there to be told of its end: a dead process that nobody was told of looks alive.
	if [ -n "$server" ]; then wait "$server"; rm -f "$dir/data/postmaster.pid"; fi
	"$bin/postgres" -D "$dir/data" -c listen_addresses= -c unix_socket_directories="$dir" >>"$dir/server.log" 2>&1 </dev/null &
	server=$!
	until grep -q ready "$dir/data/postmaster.pid" 2>/dev/null; do
		kill -0 "$server" 2>/dev/null || break
		sleep 0.01
	done
	kill -0 "$server" 2>/dev/null && echo ready || { tail -n 3 "$dir/server.log" | tr '\n' ' '; echo; }
done
[ -n "$server" ] && kill -QUIT "$server" && wait "$server"
`

func startPostgres() (*pgServer, error) {
	bin, err := pgPrograms()
	if err != nil {
		return nil, err
	}
	// Not below the folder of the benchmark, which only its own user may enter.
	dir, err := os.MkdirTemp("", "kedge-bench-pg-")
	if err != nil {
		return nil, err
	}
	credential, err := ownedByPostgres(dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	p := &pgServer{dir: dir, cmd: exec.Command("/bin/sh", "-c", keepPostgres, "keeper", bin, dir)} //nolint:noctx // it ends with the pipe
	p.cmd.Dir, p.cmd.Env = dir, []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential, Setpgid: true}
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		p.line, err = p.cmd.StdinPipe()
	}
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	p.said = bufio.NewScanner(out)
	if err := p.start(); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

// start starts the server, for the first time or after kill, and returns when it accepts connections.
func (p *pgServer) start() error {
	if _, err := io.WriteString(p.line, "start\n"); err != nil {
		return err
	}
	if !p.said.Scan() || p.said.Text() != "ready" {
		return fmt.Errorf("starting PostgreSQL: %s", p.said.Text())
	}
	return nil
}

func (p *pgServer) stop() error { return errors.Join(p.line.Close(), p.cmd.Wait()) }

// processes are the server and everything that it has started.
func (p *pgServer) processes() ([]int, error) {
	raw, err := os.ReadFile(filepath.Join(p.dir, "data", "postmaster.pid"))
	if err != nil {
		return nil, err
	}
	text, _, _ := strings.Cut(string(raw), "\n")
	first, err := strconv.Atoi(text)
	if err != nil {
		return nil, fmt.Errorf("reading the process id of PostgreSQL: %w", err)
	}
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", first, first))
	if err != nil {
		return nil, err
	}
	pids := []int{first}
	for _, text := range strings.Fields(string(children)) {
		pid, err := strconv.Atoi(text)
		if err != nil {
			return nil, fmt.Errorf("reading the process ids of PostgreSQL: %w", err)
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// kill kills every process with kill −9, the first one first, so that it cannot clean up. It returns when they
// are dead: their shared memory blocks an earlier start.
func (p *pgServer) kill(ctx context.Context) error {
	pids, err := p.processes()
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	for slices.ContainsFunc(pids, alive) {
		if !pause(ctx, time.Millisecond) {
			return ctx.Err()
		}
	}
	return nil
}

// alive reports whether a process runs and is not a zombie.
func alive(pid int) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, ok := strings.Cut(string(raw), ") ")
	return err == nil && ok && !strings.HasPrefix(state, "Z")
}

// memory is the PSS of all its processes in KiB.
func (p *pgServer) memory() (float64, error) {
	pids, err := p.processes()
	if err != nil {
		return 0, err
	}
	var total float64
	for _, pid := range pids {
		kib, err := pss(pid)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // ended meanwhile
		}
		if err != nil {
			return 0, err
		}
		total += kib
	}
	return total, nil
}

func (p *pgServer) url(role, database string) string {
	u := url.URL{Scheme: "postgres", User: url.User(role), Path: "/" + database}
	u.RawQuery = url.Values{"host": {p.dir}, "sslmode": {"disable"}}.Encode()
	return u.String()
}

// create creates a database like an operator, with a role that owns it and one that uses it, and returns the
// URLs of both.
func (p *pgServer) create(ctx context.Context) (owner, user string, err error) {
	conn, err := pgx.Connect(ctx, p.url("postgres", "postgres"))
	if err != nil {
		return "", "", err
	}
	defer func() { _ = conn.Close(ctx) }()
	p.count++
	name := fmt.Sprintf("bench_%d", p.count)
	queries := []string{"CREATE DATABASE " + name + " OWNER kedge_owner"}
	if p.count == 1 {
		queries = slices.Insert(queries, 0,
			"CREATE ROLE kedge_app NOLOGIN", "CREATE ROLE kedge_fleet NOLOGIN",
			"CREATE ROLE kedge_owner LOGIN CREATEROLE", "CREATE ROLE kedge_server LOGIN NOINHERIT",
			"GRANT kedge_app, kedge_fleet TO kedge_server")
	}
	for _, q := range queries {
		if _, err := conn.Exec(ctx, q); err != nil {
			return "", "", fmt.Errorf("%s: %w", q, err)
		}
	}
	return p.url("kedge_owner", name), p.url("kedge_server", name), nil
}

// ownedByPostgres changes the owner of the folder to the user postgres for root, because PostgreSQL refuses to
// run as root; nil means the caller.
func ownedByPostgres(dir string) (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL does not run as root and there is no user postgres: %w", err)
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, os.Chown(dir, uid, gid)
}

// pgPrograms is the folder of the newest PostgreSQL that Debian's packages, or else the PATH, have.
func pgPrograms() (string, error) {
	dirs, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil {
		return "", err
	}
	version := func(dir string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(dir))) // 0 sorts first
		return n
	}
	slices.SortFunc(dirs, func(a, b string) int { return version(b) - version(a) })
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(dir, "initdb")); err == nil {
			return dir, nil
		}
	}
	path, err := exec.LookPath("initdb")
	if err != nil {
		return "", errors.New("no PostgreSQL server is installed: install the Debian package postgresql, or use --database=sqlite")
	}
	return filepath.Dir(path), nil
}
