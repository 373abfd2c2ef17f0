package dcgm

import (
	"strconv"

	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/device"
)

// fieldLinks is how many NVLinks have fields of their own (Hopper and Blackwell
// have 18).
const fieldLinks = 18

// linkNumber is a field that is one number of one NVLink.
type linkNumber struct {
	field
	link   int
	is     device.LinkQuantity
	factor float64
}

// kibi thousands: DCGM divides the driver's counters of KiB by seconds and by
// 1000 (ReadAndCacheNvLinkBandwidth in DcgmCacheManager.cpp).
const linkRate = 1024 * 1000

// links lists the numbers of each link. The ids of errors come in four runs, as
// GPUs got more links.
func links() []linkNumber {
	runs := map[device.LinkQuantity][4]uint16{
		device.LinkCRCFlit: {400, 451, 406, 481}, device.LinkCRCData: {410, 457, 416, 484},
		device.LinkReplay: {420, 463, 426, 487}, device.LinkRecovery: {430, 469, 436, 491},
	}
	names := map[device.LinkQuantity]string{
		device.LinkCRCFlit: "CRC_FLIT", device.LinkCRCData: "CRC_DATA", device.LinkReplay: "REPLAY", device.LinkRecovery: "RECOVERY",
	}
	var all []linkNumber
	for link := range fieldLinks {
		n := strconv.Itoa(link)
		for is, run := range runs {
			all = append(all, linkNumber{field{inRun(run, link), "DCGM_FI_DEV_NVLINK_" + names[is] + "_ERROR_L" + n + "_TOTAL"}, link, is, 1})
		}
		all = append(all,
			linkNumber{field{825 + uint16(link), "DCGM_FI_DEV_NVLINK_TX_THROUGHPUT_L" + n}, link, device.LinkTransmitRate, linkRate},
			linkNumber{field{879 + uint16(link), "DCGM_FI_DEV_NVLINK_RX_THROUGHPUT_L" + n}, link, device.LinkReceiveRate, linkRate})
	}
	return all
}

// inRun is the id of a link's error: six links, six, three and three.
func inRun(run [4]uint16, link int) uint16 {
	switch {
	case link < 6:
		return run[0] + uint16(link)
	case link < 12:
		return run[1] + uint16(link-6)
	case link < 15:
		return run[2] + uint16(link-12)
	}
	return run[3] + uint16(link-15)
}
