package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/containertest"
	"github.com/daybook-project/daybook/internal/database"
)

// writersVariable makes the test binary the noise: the directory of its files. With
// directWriters before it they fill the disk's queue, and do not wait for the journal.
const (
	writersVariable = "DAYBOOK_AGENT_TEST_WRITERS"
	directWriters   = "direct:"
)

const (
	writerThreads    = 16
	writerBlockBytes = 1 << 20
	writerFileBytes  = 24 << 20
)

// beWriters writes new blocks to files, and syncs each block, until SIGTERM.
func beWriters(directory string) error {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	directory, direct := strings.CutPrefix(directory, directWriters)
	failures := make(chan error, writerThreads+1)
	write := writeFile
	if direct {
		write = writeDirect
		go func() { failures <- makeDirectories(directory) }()
	}
	for n := range writerThreads {
		go func() { failures <- write(filepath.Join(directory, fmt.Sprint("written-", n))) }()
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-failures:
		return err
	}
}

// writeFile ends only with an error.
func writeFile(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	block := make([]byte, writerBlockBytes)
	for at := int64(0); ; at += writerBlockBytes {
		if at >= writerFileBytes {
			if err := f.Truncate(0); err != nil {
				return err
			}
			at = 0
		}
		if _, err := f.WriteAt(block, at); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
	}
}

// writeDirect writes a file over and over, past the page cache. It ends only with an error.
func writeDirect(path string) error {
	const block, size = 256 << 10, 8 << 20
	memory, err := unix.Mmap(-1, 0, block, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE) // aligned
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_DIRECT, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	for at := int64(0); ; at = (at + block) % size {
		if _, err := f.WriteAt(memory, at); err != nil {
			return err
		}
	}
}

// makeDirectories makes and removes directories, and syncs each. It ends only with an error.
func makeDirectories(path string) error {
	parent, err := os.Open(path)
	if err != nil {
		return err
	}
	defer parent.Close()
	for {
		directory := filepath.Join(path, "directory")
		if err := errors.Join(os.MkdirAll(directory, 0o755), parent.Sync(), os.Remove(directory)); err != nil {
			return err
		}
	}
}

// seedOf makes the data of a database, which its pod copies to its volume.
func seedOf(t *testing.T, w *containertest.Workshop) string {
	t.Helper()
	seed := w.Path("seed")
	if err := errors.Join(os.Chmod(w.Dir, 0o711), os.Mkdir(seed, 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := database.Create(t.Context(), database.Options{Engine: database.MariaDB, Directory: seed, BinaryLog: true}, 10_000); err != nil {
		t.Fatal(err)
	}
	return seed
}

// workload is a StatefulSet or a Deployment of one pod with a weight.
func workload(kind, name string, weight int, pod string) string {
	more := ""
	if kind == "StatefulSet" {
		more = `
  serviceName: ` + name + `
  volumeClaimTemplates:
    - metadata: {name: data}
      spec: {storageClassName: disks, volumeName: pv-` + name + `, accessModes: [ReadWriteOnce], resources: {requests: {storage: 64Mi}}}`
	}
	return fmt.Sprintf(`
apiVersion: apps/v1
kind: %s
metadata: {namespace: shop, name: %s}
spec:
  selector: {matchLabels: {app: %s}}
  template:
    metadata: {labels: {app: %s}, annotations: {%s: "%d"}}
    spec: %s%s
`, kind, name, name, name, Annotation, weight, pod, more)
}

// writersPod is a pod that is the noise, on the volume of a claim.
func writersPod(claim string) string {
	program, _ := filepath.Abs(os.Args[0])
	return fmt.Sprintf(`{
  automountServiceAccountToken: false, terminationGracePeriodSeconds: 20,
  volumes: [{name: data, persistentVolumeClaim: {claimName: %s}}, {name: program, hostPath: {path: %q, type: File}}],
  containers: [{name: main, image: %q, imagePullPolicy: Never, command: [/writers], env: [{name: %s, value: /data}],
    resources: {requests: {cpu: 400m}}, volumeMounts: [{name: data, mountPath: /data}, {name: program, mountPath: /writers, readOnly: true}]}]}`,
		claim, program, containertest.CRIImage, writersVariable)
}

// databasePod is a pod with MariaDB and its clients. The programs are those of the host.
func databasePod(seed string) string {
	const server = `[ -d /data/mariadb ] || { /bin/busybox rm -f /data/written-*; /bin/busybox cp -a /seed/mariadb /data/; }
exec /usr/sbin/mariadbd --no-defaults --user=root --datadir=/data/mariadb --socket=/run/db/server --pid-file=/run/db/pid --tmpdir=/run/db \
	--skip-networking --skip-name-resolve --innodb-flush-method=O_DIRECT --innodb-flush-log-at-trx-commit=1 \
	--innodb-buffer-pool-size=128M --innodb-log-file-size=64M --log-bin=binlog --sync-binlog=1 --server-id=1`
	const clients = `trap 'exit 0' TERM
while :; do
	/usr/bin/sysbench oltp_insert --db-driver=mysql --mysql-socket=/run/db/server --mysql-user=root --mysql-db=sbtest \
		--tables=10 --table-size=1000 --threads=8 --time=100000 --report-interval=1 run &
	wait
	/bin/busybox sleep 1
done`
	mounts := `[{name: usr, mountPath: /usr, readOnly: true}, {name: lib, mountPath: /lib, readOnly: true}, {name: lib64, mountPath: /lib64, readOnly: true}, {name: run, mountPath: /run/db}`
	container := func(name, script, more string) string {
		return fmt.Sprintf(`{name: %s, image: %q, imagePullPolicy: Never, command: [/bin/busybox, sh, -c, %q], resources: {requests: {cpu: 200m}}, volumeMounts: %s%s]}`,
			name, containertest.CRIImage, script, mounts, more)
	}
	return fmt.Sprintf(`{
  automountServiceAccountToken: false, terminationGracePeriodSeconds: 30,
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}, {name: seed, hostPath: {path: %q, type: Directory}}, {name: run, emptyDir: {}},
    {name: usr, hostPath: {path: /usr}}, {name: lib, hostPath: {path: /usr/lib}}, {name: lib64, hostPath: {path: /usr/lib64}}],
  containers: [%s, %s]}`, seed,
		container("main", server, `, {name: data, mountPath: /data}, {name: seed, mountPath: /seed, readOnly: true}`), container("clients", clients, ""))
}
