package ncclhang

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// How the connection of a rank stands that waits for the others of its job, by the words of the receiver of stacks.
const (
	linkAsks      = "syn_sent"
	linkConnected = "established"
	linkNone      = "closed" // it sleeps until it tries again
)

// storeOf is the address at which a rank waits for the others of its job, and how its connection to that stands. Its
// environment says a name, and the kernel to which address it connects. A program may connect elsewhere than its environment says.
func storeOf(a pcommon.Map) (address, link string) {
	said, is := endOf(a, "server.address", "server.port"), endOf(a, "network.peer.address", "network.peer.port")
	switch link = str(a, "network.connection.state"); link {
	case linkAsks, linkConnected, linkNone:
	default:
		link = ""
	}
	if said == "" || is != "" && !mayBe(said, is) {
		return socketstall.Clip(is), link
	}
	return socketstall.Clip(said), link
}

// endOf is an address and port, "" where one of them is not known.
func endOf(a pcommon.Map, address, port string) string {
	host := str(a, address)
	number, _ := whole(a, port)
	if host == "" || number <= 0 || number > 65535 {
		return ""
	}
	return net.JoinHostPort(host, strconv.FormatInt(number, 10))
}

// mayBe reports whether what the environment says may be the address of that connection.
func mayBe(said, is string) bool {
	host, port, _ := net.SplitHostPort(said)
	peer, number, _ := net.SplitHostPort(is)
	address, err := netip.ParseAddr(host)
	return port == number && (err != nil || address.Unmap().String() == peer)
}

// meetingPlace is an address at which some ranks wait for the others, with their connections in one state.
type meetingPlace struct {
	store, link string
	ranks       []int
	asleep      []int // those of them that do not run
}

// meetings are the addresses at which the ranks wait, by the first rank of each. A rank that runs has the store itself: how its
// connection stands says nothing, and it counts with others of its address. Without an id the job is named by that address.
func (s *ranksByStack) meetings() (all []meetingPlace) {
	named := meetingAddress(s.run.job)
	for _, runs := range []bool{false, true} {
		for _, rank := range s.waits {
			p := &s.of[rank].stack
			if runs != (p.Reason != reasonAsleep) {
				continue
			}
			store := cmp.Or(p.Store, named)
			i := slices.IndexFunc(all, func(m meetingPlace) bool { return m.store == store && (runs || m.link == p.Link) })
			if i < 0 {
				i = len(all)
				all = append(all, meetingPlace{store: store})
			}
			m := &all[i]
			if m.ranks = append(m.ranks, rank); !runs {
				m.link, m.asleep = p.Link, append(m.asleep, rank)
			}
		}
	}
	for i := range all {
		slices.Sort(all[i].ranks)
	}
	slices.SortFunc(all, func(a, b meetingPlace) int { return cmp.Compare(a.ranks[0], b.ranks[0]) })
	return all
}

// meetingsText says where they wait, "" where that is not known of any.
func meetingsText(places []meetingPlace, hosts int) string {
	if len(places) == 1 && places[0].store != "" {
		return ", at " + places[0].text(hosts)
	}
	var parts []string
	for i := range places {
		if m := &places[i]; m.store != "" && len(parts) < mostPlaces {
			parts = append(parts, subject(m.ranks)+" at "+m.text(hosts))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "; " + strings.Join(parts, "; ")
}

// text says which address it is, and whether anybody answers there, as the kernel of those that ask knows it.
func (m *meetingPlace) text(hosts int) string {
	text, who := m.store, ""
	if host, _, err := net.SplitHostPort(text); err == nil && hosts > 1 && loopback(host) {
		text += " of each host"
	}
	if len(m.asleep) < len(m.ranks) {
		who = " " + subject(m.asleep)
	}
	switch m.link {
	case linkAsks:
		text += ", which does not answer" + who
	case linkNone:
		text += ", to which no connection" + strings.Replace(who, " ", " of ", 1) + " comes about"
	case linkConnected:
		text += ", from which no data comes" + strings.Replace(who, " ", " to ", 1)
	}
	return text
}

func loopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback()
}

// stores says at which address ranks wait in the store, "" where that is not known.
func (s *ranksByStack) stores() string {
	hosts := map[string]bool{}
	for _, rank := range s.waits {
		hosts[s.of[rank].host.Host] = true
	}
	return socketstall.Clip(strings.TrimLeft(meetingsText(s.meetings(), len(hosts)), ",; "))
}
