package cgroup

import "fmt"

// v1LimitFile is the file of each key of Limit; "0" removes a limit.
var v1LimitFile = map[string]string{
	"rbps":  "blkio.throttle.read_bps_device",
	"wbps":  "blkio.throttle.write_bps_device",
	"riops": "blkio.throttle.read_iops_device",
	"wiops": "blkio.throttle.write_iops_device",
}

func (v1) limit(t *Tree, cgroupPath string, d disk) (Limit, error) {
	var limit Limit
	for _, key := range limitKeys {
		content, err := t.read(cgroupPath, v1LimitFile[key])
		if err != nil {
			return Limit{}, err
		}
		if *limit.field(key), err = parseThrottle(content, d.dev); err != nil {
			return Limit{}, t.explain("read", cgroupPath, v1LimitFile[key], err)
		}
	}
	return limit, nil
}

func (v1) setLimit(t *Tree, cgroupPath string, d disk, now, next Limit) error {
	for _, key := range limitKeys {
		value := *next.field(key)
		if value == *now.field(key) {
			continue
		}
		if err := t.write(cgroupPath, v1LimitFile[key], fmt.Sprintf("%s %d", d.dev, value)); err != nil {
			return err
		}
	}
	return nil
}
