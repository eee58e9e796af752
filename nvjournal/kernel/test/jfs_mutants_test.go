package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/vm/kernels"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// moduleVariable is another jfsnvj.ko than that of the repository.
const moduleVariable = "DAYBOOK_JFSNVJ_MODULE"

// jfsMutant is an error in jfsnvj, and the tests that find it.
type jfsMutant struct {
	what       string
	file       string // below nvjournal
	has, shall string // a text that is there once, and what it becomes
	test       string // "": TestGuestJFS
	cases      string
}

var jfsMutants = []jfsMutant{
	{"only the first superblock is marked", "kernel/jfs/mark.c",
		"int error = change(sb, NVJ_JFS_SUPER_COPY, -1, true);", "int error = 0;", "", "freeze"},
	{"an umount after an abort removes the mark", "kernel/jfs/mark.c",
		"if (READ_ONCE(j->aborted) && state == FM_CLEAN)", "if (false)", "", "failed data"},
	{"changes of the persistent maps are not logged", "kernel/jfs/maps.c",
		"lines |= lines_mask(at, at);", "(void)at;", "", "recovery"},
	{"where inodes are is not logged", "kernel/jfs/known.c",
		"lines |= line_of(offsetof(struct iag, inoext) + extent * sizeof(now));", "", "", "first records"},
	{"a record of the inode map shows what other transactions do", "kernel/jfs/transaction.c",
		"const void *image = iag ?: map->mp->data;", "const void *image = map->mp->data;", "", "removed extents"},
	{"each first record is a whole page", "kernel/jfs/known.c",
		"if (!known || !j ||", "if (true || !j ||", "", "first records"},
	{"the first record of a page of extents is compared", "kernel/jfs/transaction.c",
		"return NVJ_ALL_LINES;", "return 0;", "", "first records"},
	{"freed blocks are still carried home", "kernel/jfs/maps.c",
		"	if (free)\n		revoke_range(", "	if (false)\n		revoke_range(", "", "freed blocks"},
	{"JFS may write the page of a freed block only after the tail", "kernel/jfs/home.c",
		"mp->nvj_tid <= nvj_committed(j->nvj)", "mp->nvj_tid <= nvj_tail(j->nvj)", "", "reused blocks"},
	{"a freed page counts as freed only if the journal has it", "kernel/jfs/maps.c",
		"if (mp && mp->nvj_tid && !mp->nvj_revoked)", "if (mp && mp->nvj_tid > tail && !mp->nvj_revoked)", "", "unlinked"},
	{"a page is logged that its transaction frees", "kernel/jfs/transaction.c",
		"if (test_bit(META_discard, &mp->flag))", "if (false)", "", "emptied pages"},
	{"fsync does not wait for the thread that writes the inode back", "kernel/jfs/log.c",
		"if (is_written_back(inode))", "if (false && is_written_back(inode))", "", "sync meanwhile"},
	{"a sync does not wait for a thread that commits an inode", "kernel/jfs/edits",
		"		mutex_lock(&JFS_IP(inode)->commit_mutex);\n		mutex_unlock(&JFS_IP(inode)->commit_mutex);\n", "", "", "sync meanwhile"},
	{"a sync relies on a flush that has not ended", "kernel/jfs/log.c",
		"atomic64_read(&j->flushed) <= then.flushes", "atomic64_read(&j->flushes) == then.flushes", "", "syncs together"},
	{"a commit goes to memory that is known to be bad", "kernel/jfs/log.c",
		"error = check_memory(j) ?: jfsnvj_flush_data(j, tid);", "(void)check_memory;\n	error = jfsnvj_flush_data(j, tid);", "", "media errors"},
	{"a write of JFS that fails at the end of an umount does not count", "kernel/jfs/rest.c",
		"if (!READ_ONCE(j->aborted) && !(READ_ONCE(j->at_rest) && is_written(j)))", "if (false)", "", "unwritten maps"},
	{"what ended at once is not committed", "kernel/jfs/thread.c",
		"atomic64_read(&j->newest) > (s64)nvj_committed(j->nvj)", "READ_ONCE(j->queued)", "", "unsynced"},
	{"a transaction that frees blocks ends at once", "kernel/jfs/transaction.c",
		"			if (!(maplock->flag & mlckALLOC))\n				return false;", "			(void)maplock;", "", "unsynced"},
	{"a page is freed while an earlier transaction holds it", "kernel/jfs/log.c",
		"		if (tlck->flag & tlckFREEPAGE)\n			return false;", "		(void)tlck;", "", "truncated after lazy"},
	{"a write of JFS that failed does not count", "kernel/jfs/home.c",
		"	if (j)\n		atomic_inc(&j->failed_writes);", "	(void)j;", "", "failed extension"},
	{"the superblock of an extension may be the old one", "kernel/jfs/resize.c",
		"if (!error && super.log_block != j->log.base)", "if (false)", "", "failed extension"},
	{"a disk whose maps were not written is not marked", "kernel/jfs/rest.c",
		"if (jfsnvj_write_maps(j))\n		give_up_rest(j, unmounting);", "(void)jfsnvj_write_maps(j);", "", "unwritten maps"},
	{"recovery does not make the working maps", "kernel/jfs/load.c",
		"err = rebuild(sb);", "err = 0 ? rebuild(sb) : 0;", "", "recovery"},
	{"recovery reads what another program has read before", "kernel/jfs/load.c",
		"	err = drop_cache(sb);\n", "	err = 0;\n", "", "disk kept open"},
	{"the maps are not written at umount", "kernel/jfs/rest.c",
		"	WRITE_ONCE(j->at_rest, true);\n	if (", "	if (", "", "scripts"},
	{"a frozen disk has old counts in its maps", "kernel/jfs/rest.c",
		"	error = dbSync(sbi->ipbmap);\n	error = diSync(sbi->ipimap) ?: error;\n", "	error = 0;\n", "", "freeze"},
	{"a commit does not flush file data", "kernel/jfs/log.c",
		"if (blkdev_issue_flush(j->sb->s_bdev))", "if (false)", "^TestGuestJFSPowerCuts$/./^jfsnvj-1$", ""},
	{"fsync does not commit what JFS has committed lazily", "kernel/jfs/log.c",
		"return error ?: commit_since(j, then);", "(void)then;\n	return error;", "^TestGuestJFSPowerCuts$/./^jfsnvj-1$", ""},
	{"pages stay in memory after an abort", "kernel/jfs/home.c",
		"if (READ_ONCE(j->ending))", "if (false)", "", "failed data,unload"},
	{"the journal does not get what the disk had before it was extended", "kernel/jfs/resize.c",
		"	error = commit_blocks(j, b, false);", "	error = 0;", "^TestGuestJFSResizePowerCuts$", ""},
	{"recovery undoes an extension that has ended", "kernel/jfs/resize.c",
		"	error = commit_blocks(j, b, true);", "	error = 0;", "^TestGuestJFSResizePowerCuts$", ""},
	{"a frozen file system becomes read-only", "kernel/jfs/rest.c",
		"if (sb->s_writers.frozen == SB_UNFROZEN)", "if (true)", "", "failures while frozen"},
	{"a freeze that failed drops pages", "kernel/jfs/rest.c",
		"		if (unmounting)\n			WRITE_ONCE(j->ending, true);\n		return;", "		WRITE_ONCE(j->ending, true);\n		return;", "", "failures while frozen"},
	{"an umount does not wait for transactions", "kernel/jfs/rest.c",
		"!atomic_read(&j->log.active) &&\n	       !(READ_ONCE(JFS_SBI(j->sb)->commit_state) & IN_LAZYCOMMIT)", "true", "", "slow end"},
	{"blocks are free though their removal was not committed", "kernel/jfs/edits",
		"	if (jfsnvj_is_aborted(sb)) {\n		IREAD_UNLOCK", "	if (false) {\n		IREAD_UNLOCK", "", "lost frees"},
	{"a file that is closed does not wait for the thaw", "kernel/jfs/rest.c",
		"	sb_start_intwrite(sb);\n	return true;", "	return false;", "", "closed while frozen"},
	{"a file that is closed does not wait for the end of an extension", "kernel/jfs/edits",
		"			if (waits)\n				jfsnvj_allocation_begins(inode->i_sb);\n			if (test_cflag(COMMIT_Freewmap, inode))\n				jfs_free_zero_link(inode);\n\n			if (ipimap && JFS_IP(ipimap)->i_imap)\n				diFree(inode);\n			if (waits)\n				jfsnvj_allocation_ends(inode->i_sb);",
		"			if (test_cflag(COMMIT_Freewmap, inode))\n				jfs_free_zero_link(inode);\n\n			if (ipimap && JFS_IP(ipimap)->i_imap)\n				diFree(inode);", "", "changed while extended"},
	{"an inode is made while the file system is extended", "kernel/jfs/edits",
		"	jfsnvj_allocation_begins(sb);\n	rc = diAlloc(parent, S_ISDIR(mode), inode);\n	jfsnvj_allocation_ends(sb);", "	rc = diAlloc(parent, S_ISDIR(mode), inode);", "", "changed while extended"},
	{"FITRIM does not wait for the thaw", "kernel/jfs/edits",
		"		sb_start_write(sb);\n		ret = jfs_ioc_trim(inode, &range);\n		sb_end_write(sb);", "		ret = jfs_ioc_trim(inode, &range);", "", "trimmed while frozen"},
	{"the size of a line is read from each list of lines", "kernel/jfs/transaction.c",
		"u32 first = lock->lv[i].offset << line_log2;", "u32 first = lock->lv[i].offset << lock->l2linesize;", "", "lists of lines"},
	{"the kernel gets no memory from the journal", "kernel/mount/shrink.c",
		"	released = nvj_shrink(s->nvj, control->nr_to_scan, &scanned);", "	released = scanned = 0;", "", "memory"},
	{"a freeze commits inodes of other file systems", "kernel/jfs/edits",
		"			if (jfs_ip->vfs_inode.i_sb != sb)\n				continue;\n", "", "", "freeze alone"},
	{"the disk is marked before the journal is open", "kernel/jfs/mark.c",
		"else if (!j->nvj)", "else if (false)", "", "damaged map"},
	{"a remount closes a journal that is in use", "kernel/jfs/log.c",
		"	down_write(&j->opened);\n	JFS_SBI(sb)->log = NULL;\n	error = jfsnvj_close(j);\n	up_write(&j->opened);",
		"	JFS_SBI(sb)->log = NULL;\n	error = jfsnvj_close(j);", "", "sync and remount"},
	{"a remount that failed leaves the file system writable", "kernel/jfs/edits",
		"		if (ret)\n			return ret;", "		(void)ret;", "", "failed remount"},
	{"a remount whose inode map cannot be read drops that in memory", "kernel/jfs/load.c",
		"int error = diMount(ipimap);", "int error = (JFS_IP(ipimap)->i_imap = NULL, diMount(ipimap));", "", "failed remount"},
	{"a remount whose block map cannot be read drops that in memory", "kernel/jfs/load.c",
		"int error = dbMount(JFS_SBI(sb)->ipbmap);", "int error = (JFS_SBI(sb)->bmap = NULL, dbMount(JFS_SBI(sb)->ipbmap));", "", "failed remount"},
	{"a mount whose disk fails returns EINVAL", "kernel/jfs/edits",
		"		ret = rc;\n		goto out_mount_failed;", "		goto out_mount_failed;", "", "failed mount"},
	{"a mount whose journal cannot be opened returns EINVAL", "kernel/jfs/edits",
		"			ret = rc;\n			goto out_no_rw;", "			goto out_no_rw;", "", "failed mount"},
	{"an inode that is not committed keeps its locks", "kernel/jfs/edits",
		"	if (sb_rdonly(inode->i_sb))\n		jfsnvj_drop_anonymous(inode);\n", "", "", "uncommitted"},
	{"pages of an inode that is not committed stay in memory", "kernel/jfs/edits",
		"		_metapage_homeok(mp);\n		put_metapage(mp);", "		put_metapage(mp);", "", "uncommitted"},
	{"a transaction that is given up keeps its pages, and further locks of a page", "kernel/jfs/edits",
		"		if (mp && !(tlck->flag & tlckPAGELOCK))\n			mp->lid = 0;\n		jfsnvj_give_up_lock(lid);", "		if (mp)\n			mp->lid = 0;\n		jfsnvj_free_tlock(lid);", "", "given up"},
	{"further locks of a page that are given up stay in use", "kernel/jfs/edits",
		"	while ((llid = lines->next)) {", "	while (false && (llid = lines->next)) {", "", "given up"},
	{"pages that are given up are written home", "kernel/jfs/edits",
		"		clear_bit(META_dirty, &mp->flag);\n", "", "", "given up"},
	{"an extension holds up a thread that it waits for", "kernel/jfs/edits",
		"'tid = txBegin(ip->i_sb, COMMIT_INODE | COMMIT_FORCE);'", "'tid = txBegin(ip->i_sb, COMMIT_INODE);'", "", "extended while few"},
	{"a thread that is held up does not see the end of an extension", "kernel/jfs/edits",
		"	TXN_LOCK();\n	clear_bit(log_QUIESCE, &log->flag);\n	TXN_UNLOCK();\n", "	clear_bit(log_QUIESCE, &log->flag);\n", "", "resumed"},
	{"an umount does not wait for the thread that commits inodes", "kernel/jfs/rest.c",
		"	jfsnvj_wait_for_sync(sb);\n", "", "", "unmounted while few"},
	{"a remount after an error drops what is not at home", "kernel/jfs/options.c",
		"if (sb_rdonly(sb) && jfsnvj_of(sb)->nvj) {", "if (false) {", "", "remount after an error"},
	{"a remount read-only after an error is refused, as the file system is not read-only yet", "kernel/jfs/options.c",
		"	jfsnvj_is_read_only_now(jfsnvj_of(sb));\n", "", "", "remount after an abort"},
	{"an aborted file system can become writable", "kernel/jfs/options.c",
		"if (READ_ONCE(jfsnvj_of(sb)->aborted)) {", "if (false) {", "", "failed data"},
}

// Each error that is put into jfsnvj is found by a test. The unchanged module passes the
// same tests.
func TestGuestJFSMutants(t *testing.T) {
	vmtest.Long(t)
	jfsSystems(t, jfsOne)
	makeTool := needs.Tool(t, "make")
	vmtest.EachKernel(t, func(t *testing.T, kernel string) {
		vmtest.Need(t, kernel)
		store, err := kernels.DefaultStore()
		if err != nil {
			t.Fatal(err)
		}
		tree, err := store.Get(t.Context(), kernel, kernels.Headers, kernels.Source)
		if err != nil {
			t.Fatal(err)
		}
		root := t.TempDir()
		must(t, makeTool, "-C", "..", "dkms", "DESTDIR="+root)
		copied, err := filepath.Glob(filepath.Join(root, "usr/src/ext4nvj-*"))
		if err != nil || len(copied) != 1 {
			t.Fatalf("make dkms made %q, %v", copied, err)
		}
		build := func(t *testing.T) {
			must(t, makeTool, "-C", filepath.Join(copied[0], "kernel"), "HEADERS="+tree.Headers, "SOURCE="+tree.Source, "NAME="+kernel, "jfsnvj")
		}
		passes := func(m jfsMutant) (bool, string) {
			test := m.test
			if test == "" {
				test = "^TestGuestJFS$"
			}
			command := exec.CommandContext(t.Context(), os.Args[0], "-test.run="+test, "-test.v", "-test.timeout=10m")
			command.Env = append(os.Environ(), "DAYBOOK_VM_LONG=0", "DAYBOOK_VM_KERNELS="+kernel, casesVariable+"="+m.cases, systemsVariable+"="+jfsOne.name,
				moduleVariable+"="+filepath.Join(copied[0], "kernel/build", kernel, "jfsnvj.ko"))
			out, err := command.CombinedOutput()
			if !strings.Contains(string(out), "=== RUN   TestGuestJFS") || strings.Contains(string(out), "--- SKIP") {
				t.Fatalf("%s did not run: %v:\n%s", test, err, out)
			}
			return err == nil, string(out)
		}
		build(t)
		sound := map[[2]string]bool{}
		for _, m := range jfsMutants {
			t.Run(strings.ReplaceAll(m.what, " ", "-"), func(t *testing.T) {
				path := filepath.Join(copied[0], m.file)
				text, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if n := strings.Count(string(text), m.has); n != 1 {
					t.Fatalf("%s has these lines %d times: the module has changed, so must the mutant: %s", m.file, n, m.has)
				}
				if key := [2]string{m.test, m.cases}; !sound[key] {
					if ok, out := passes(m); !ok {
						t.Fatalf("the unchanged module does not pass:\n%s", out)
					}
					sound[key] = true
				}
				if err := os.WriteFile(path, []byte(strings.Replace(string(text), m.has, m.shall, 1)), 0o644); err != nil {
					t.Fatal(err)
				}
				build(t)
				found, out := passes(m)
				if err := os.WriteFile(path, text, 0o644); err != nil {
					t.Fatal(err)
				}
				build(t)
				if found {
					t.Errorf("no test finds it: %s", m.what)
					return
				}
				t.Logf("found: %s", firstProblem(out))
			})
		}
	})
}

// firstProblem is the first line of a test's output that tells of one.
func firstProblem(out string) string {
	for line := range strings.Lines(out) {
		if strings.Contains(line, "_test.go:") && !strings.Contains(line, ": seed ") {
			return strings.TrimSpace(line)
		}
	}
	return "the guest or its kernel failed"
}
