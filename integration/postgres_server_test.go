//go:build unix

package integration

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

// A postgres is a PostgreSQL server on a free port, with its data in a temporary
// directory.
type postgres struct {
	port int
}

// startPostgres starts a server that ends with the test, or with this process
// should that come first.
func startPostgres(t *testing.T) *postgres {
	t.Helper()
	who := notRoot(t)
	dir, err := os.MkdirTemp("", "ration-postgres-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	if who != nil {
		require.NoError(t, os.Chown(dir, int(who.Uid), int(who.Gid)))
	}
	data := filepath.Join(dir, "data")

	initdb := exec.Command(program(t, "initdb"), "--pgdata="+data, "--username=admin", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync")
	initdb.Dir = dir
	initdb.SysProcAttr = &syscall.SysProcAttr{Credential: who}
	out, err := initdb.CombinedOutput()
	require.NoError(t, err, "initdb: %s", out)

	for attempt := 1; ; attempt++ {
		p := &postgres{port: freePort(t)}
		log, ready := p.run(t, who, dir, data)
		if ready {
			return p
		}
		// The port may have been taken between two moments.
		require.Less(t, attempt, 3, "postgres does not start: %s", log)
	}
}

// keeper runs its arguments until it finds the end of its input.
const keeper = `exec 3<&0; "$@" </dev/null & pid=$!; (read -r _ <&3; kill -INT $pid) & wait $pid`

// run starts the server and waits until it answers, or has said why it does not.
func (p *postgres) run(t *testing.T, who *syscall.Credential, dir, data string) (log []byte, ready bool) {
	t.Helper()
	logName := filepath.Join(dir, "log")
	logFile, err := os.Create(logName)
	require.NoError(t, err)
	defer logFile.Close()
	cmd := exec.Command("sh", "-c", keeper, "keeper", program(t, "postgres"), "-D", data,
		"-c", "listen_addresses=127.0.0.1", "-c", "port="+strconv.Itoa(p.port), "-c", "unix_socket_directories=",
		"-c", "fsync=off", "-c", "max_connections=20", "-c", "shared_buffers=16MB", "-c", "autovacuum=off")
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who, Setpgid: true}
	alive, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		cmd.Wait()
	}()
	stop := func() {
		alive.Close()
		select {
		case <-ended:
		case <-time.After(patience):
			syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			<-ended
			t.Error("postgres had to be killed")
		}
	}

	for deadline := time.After(patience); ; {
		if conn, err := p.connect(t.Context(), "admin", "postgres"); err == nil {
			t.Cleanup(stop)
			closePG(conn)
			return nil, true
		}
		select {
		case <-ended:
		case <-deadline:
		case <-time.After(20 * time.Millisecond):
			continue
		}
		stop()
		log, _ = os.ReadFile(logName)
		return log, false
	}
}

// notRoot returns whom to be to run a server that refuses to be run by root; nil
// if this is not root.
func notRoot(t *testing.T) *syscall.Credential {
	t.Helper()
	if os.Getuid() != 0 {
		return nil
	}
	u, err := user.Lookup("postgres")
	require.NoError(t, err, "PostgreSQL does not run as root; run integration/setup.sh first")
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	require.NoError(t, err)
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	require.NoError(t, err)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

// program finds a program of PostgreSQL's. Debian keeps those of the server out
// of the path, in a directory for each version.
func program(t *testing.T, name string) string {
	t.Helper()
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	paths, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	require.NoError(t, err)
	require.NotEmpty(t, paths, "PostgreSQL's %s is not there; run integration/setup.sh first", name)
	version := func(path string) int {
		n, _ := strconv.Atoi(strings.Split(path, "/")[4])
		return n
	}
	return slices.MaxFunc(paths, func(a, b string) int { return version(a) - version(b) })
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// connect opens a connection. When it is closed, by whomever, that waits until
// the server has closed it too, which a backend does by ending: the server must
// have forgotten it before the pool opens the next.
func (p *postgres) connect(ctx context.Context, role, database string) (*pgconn.PgConn, error) {
	config, err := pgconn.ParseConfig(fmt.Sprintf("host=127.0.0.1 port=%d user=%s dbname=%s sslmode=disable", p.port, role, database))
	if err != nil {
		return nil, err
	}
	config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		var d net.Dialer
		conn, err := d.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return lingering{conn.(*net.TCPConn)}, nil
	}
	return pgconn.ConnectConfig(ctx, config)
}

type lingering struct{ *net.TCPConn }

func (l lingering) Close() error {
	l.CloseWrite()
	l.SetReadDeadline(time.Now().Add(patience))
	io.Copy(io.Discard, l.TCPConn)
	return l.TCPConn.Close()
}

// closePG closes a connection. If it is being closed already, it waits for that.
func closePG(conn *pgconn.PgConn) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := conn.Close(ctx); err != nil {
		return err
	}
	select {
	case <-conn.CleanupDone():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
