// Package jobs generates job postings: JSON documents of about 1 KB with ids, for
// demonstrations, tests and benchmarks without real documents.
//
//	postings := jobs.New(1)
//	line := postings.Next() // {"id":"job-0000001","title":...}
//
// The same seed gives the same postings in the same order.
package jobs

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// Posting is a job posting.
type Posting struct {
	ID          string   `json:"id"`
	Title       string   `json:"title"`
	Company     string   `json:"company"`
	City        string   `json:"city"`
	Country     string   `json:"country"`
	Salary      Salary   `json:"salary"`
	Employment  string   `json:"employment"`
	Remote      bool     `json:"remote"`
	Posted      string   `json:"posted"`
	URL         string   `json:"url"`
	Skills      []string `json:"skills"`
	Description string   `json:"description"`
}

// Salary is a range of yearly pay.
type Salary struct {
	Minimum  int    `json:"minimum"`
	Maximum  int    `json:"maximum"`
	Currency string `json:"currency"`
}

// Document returns the posting as one line of JSON, without a newline.
func (p Posting) Document() []byte {
	document, err := json.Marshal(p)
	if err != nil {
		panic(err) // impossible: the fields are strings, numbers and a bool
	}
	return document
}

// ID returns the id of the n-th posting of every generator, from 1.
func ID(n int) string { return fmt.Sprintf("job-%07d", n) }

// Generator generates postings. It is not safe for concurrent use.
type Generator struct {
	random *rand.Rand
	made   int
}

// New returns a generator whose postings depend only on the seed.
func New(seed uint64) *Generator {
	return &Generator{random: rand.New(rand.NewPCG(seed, 0))}
}

// Next returns the document of the next posting.
func (g *Generator) Next() []byte { return g.NextPosting().Document() }

var (
	employments = []string{"full time", "full time", "full time", "part time", "contract", "internship"}
	fields      = []string{"engineering", "nursing", "logistics", "accounting", "teaching", "retail", "design", "sales", "catering", "security"}
	skills      = []string{
		"Go", "SQL", "Linux", "Excel", "first aid", "forklift licence", "customer care", "German", "Spanish",
		"project planning", "bookkeeping", "welding", "data analysis", "negotiation", "teamwork", "copywriting",
		"patient care", "inventory", "teaching", "JavaScript", "food hygiene", "driving licence", "Java", "payroll",
	}
	openings = []string{
		"%s is looking for a %s to join our team in %s.",
		"Join %s as a %s at our office in %s!",
		"At %s we need a reliable %s, based in %s.",
		"%s, a leader in its field, is hiring a %s for %s.",
	}
	levels = []string{
		"Junior", "Senior", "Lead", "Principal", "Chief", "Regional", "National", "Global", "Corporate", "District",
		"Internal", "Customer", "Product", "Central", "Direct", "Human", "Future", "Dynamic", "International", "Branding",
	}
	titles = []string{
		"Accountant", "Administrator", "Agent", "Analyst", "Architect", "Assistant", "Associate", "Baker", "Bookkeeper",
		"Carpenter", "Chemist", "Consultant", "Coordinator", "Designer", "Developer", "Dietitian", "Director", "Driver",
		"Electrician", "Engineer", "Executive", "Facilitator", "Gardener", "Inspector", "Librarian", "Machinist",
		"Manager", "Mechanic", "Midwife", "Nurse", "Officer", "Orchestrator", "Painter", "Pharmacist", "Planner",
		"Plumber", "Producer", "Representative", "Specialist", "Strategist", "Supervisor", "Surveyor", "Teacher",
		"Technician", "Translator", "Veterinarian", "Waiter", "Welder",
	}
	names = []string{
		"Abbott", "Adler", "Alvarez", "Andersen", "Baker", "Barnes", "Becker", "Bennett", "Bianchi", "Carter", "Castillo",
		"Chen", "Cooper", "Costa", "Dawson", "Delgado", "Dubois", "Eriksson", "Farrell", "Fischer", "Fraser", "Garcia",
		"Gruber", "Hansen", "Harper", "Hoffmann", "Ibrahim", "Ivanov", "Jansen", "Johnson", "Kaplan", "Keller", "Kim",
		"Kowalski", "Lambert", "Larsen", "Lopez", "Martin", "Mendoza", "Miller", "Moreau", "Nakamura", "Nguyen", "Novak",
		"Okafor", "Olsen", "Patel", "Pereira", "Petrov", "Quinn", "Reyes", "Richter", "Rossi", "Sandoval", "Santos",
		"Schmidt", "Silva", "Singh", "Tanaka", "Thompson", "Torres", "Turner", "Vargas", "Walker", "Weber", "Wilson",
		"Wagner", "Young", "Zhang", "Zimmermann",
	}
	cities = []string{
		"Albuquerque", "Anaheim", "Anchorage", "Arlington", "Atlanta", "Aurora", "Austin", "Bakersfield", "Baltimore",
		"Boise", "Boston", "Buffalo", "Chandler", "Charlotte", "Chicago", "Cincinnati", "Cleveland", "Columbus", "Dallas",
		"Denver", "Detroit", "Durham", "El Paso", "Fremont", "Fresno", "Greensboro", "Henderson", "Hialeah", "Honolulu",
		"Houston", "Indianapolis", "Irvine", "Jacksonville", "Kansas City", "Laredo", "Las Vegas", "Lexington", "Lincoln",
		"Long Beach", "Louisville", "Lubbock", "Madison", "Memphis", "Miami", "Milwaukee", "Minneapolis", "Nashville",
		"New Orleans", "Newark", "Norfolk", "Oakland", "Omaha", "Orlando", "Philadelphia", "Phoenix", "Pittsburgh",
		"Portland", "Raleigh", "Reno", "Richmond", "Riverside", "Sacramento", "San Antonio", "San Diego", "Seattle",
		"Spokane", "St. Louis", "Tampa", "Toledo", "Tucson", "Tulsa", "Wichita", "Winston-Salem",
	}
	suffixes = []string{"and Sons", "Group", "LLC", "Inc", "Partners", "Works", "Logistics", "Systems"}
	tasks    = []string{
		"plan the week's deliveries", "look after our largest customers", "keep the machines running",
		"prepare the monthly figures", "train new colleagues", "improve how we test our products",
		"write offers and follow them up", "answer what customers ask", "check incoming goods",
		"design forms that people understand", "keep our records in order", "lead a small crew",
	}
	duties = []string{
		"You will %s together with colleagues from %s.",
		"Every day you %s and report to the head of %s.",
		"Your task is to %s, supported by our %s department.",
		"You help us to %s across all of %s.",
	}
	wishes = []string{
		"Experience with %s and %s is expected; a sense of humour helps.",
		"We ask for sound knowledge of %s and some of %s.",
		"Ideally you bring %s, %s and an eye for detail.",
		"Skills in %s or %s are a plus, and we train what is missing.",
	}
	offers = []string{
		"We offer flexible hours, 28 days of leave and a pension plan.",
		"Health insurance, a transit pass and free coffee are part of the deal.",
		"You get a permanent contract after six months and a yearly training budget.",
		"Relocation is paid for, and a mentor is by your side from the first day.",
	}
	newest = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
)

// NextPosting returns the next posting as a struct.
func (g *Generator) NextPosting() Posting {
	g.made++
	minimum := 24_000 + 500*g.number(0, 200)
	p := Posting{
		ID:         ID(g.made),
		Title:      g.pick(levels) + " " + g.pick(titles),
		Company:    g.pick(names) + " " + g.pick(suffixes),
		City:       g.pick(cities),
		Country:    "US",
		Salary:     Salary{Minimum: minimum, Maximum: minimum + 1_000*g.number(2, 40), Currency: "USD"},
		Employment: g.pick(employments),
		Remote:     g.number(0, 3) == 0,
		Posted:     newest.Add(-time.Duration(g.number(0, 90*24*60)) * time.Minute).Format(time.RFC3339),
		Skills:     g.pickSkills(g.number(3, 6)),
	}
	p.URL = "https://jobs.example.com/" + p.ID
	p.Description = g.describe(p)
	return p
}

func (g *Generator) describe(p Posting) string {
	var b strings.Builder
	fmt.Fprintf(&b, g.pick(openings), p.Company, strings.ToLower(p.Title), p.City)
	for range g.number(3, 9) {
		b.WriteByte(' ')
		fmt.Fprintf(&b, g.pick(duties), g.pick(tasks), g.pick(fields))
	}
	b.WriteByte(' ')
	fmt.Fprintf(&b, g.pick(wishes), p.Skills[0], p.Skills[1])
	b.WriteByte(' ')
	b.WriteString(g.pick(offers))
	return b.String()
}

// number returns a number from least to most.
func (g *Generator) number(least, most int) int { return least + g.random.IntN(most-least+1) }

func (g *Generator) pick(from []string) string { return from[g.random.IntN(len(from))] }

// pickSkills picks n different skills.
func (g *Generator) pickSkills(n int) []string {
	picked := make([]string, n)
	first := g.number(0, len(skills)-1)
	step := []int{1, 5, 7, 11}[g.number(0, 3)] // coprime to the 24 skills, so no skill is picked twice
	for i := range picked {
		picked[i] = skills[(first+i*step)%len(skills)]
	}
	return picked
}
