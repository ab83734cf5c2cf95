//! The client: requests, waits, and compares.

use std::hash::{BuildHasher, RandomState};
use std::time::Instant;

use farreach_fabric::{Address, ExposedRegion, Peer, RemoteAccess};

use crate::args::{AddIndex, Args};
use crate::arrivals::Arrivals;
use crate::data::{Bytes, draw_pages};
use crate::failure::Failure;
use crate::message::{Fill, Message, REGIONS, Region, VERSION};
use crate::node::{Heard, Node};
use crate::plan::PAGES_MAX;

/// The length of each region in bytes.
const REGION_LEN: usize = 16 << 20;

/// The number of messages that the server may send before the client polls.
const RECEIVES: usize = 4;

struct Client<'a> {
    args: &'a Args,
    node: Node,
    server: Peer,
    regions: [ExposedRegion; REGIONS],
}

pub(crate) fn visit(args: &Args, address: &str) -> Result<(), Failure> {
    if args.pages as usize > PAGES_MAX {
        return Err(Failure::usage(
            &format!("a request cannot name {} pages", args.pages),
            &format!("ask for at most {PAGES_MAX}"),
        ));
    }
    let node = Node::open(args, RECEIVES)?;
    let address = Address::parse_hex(node.domain.info().address_format(), address)?;
    let server = node.endpoint.av().insert(&address)?;
    let expose = || {
        let slice = node.domain.allocate(REGION_LEN)?;
        node.domain.expose(slice, RemoteAccess::WRITE).map_err(|(error, _slice)| error)
    };
    let regions = [expose()?, expose()?];
    let mut client = Client { args, node, server, regions };
    let number = client.connect()?;
    let first = args.seed.unwrap_or_else(|| RandomState::new().hash_one(number));
    for request in 1..=args.requests {
        client.ask(number, request, first.wrapping_add(u64::from(request)))?;
        println!(
            "request {request}: {} pages of {} bytes in each of {REGIONS} regions, verified",
            args.pages, args.page_size
        );
    }
    let deadline = client.deadline();
    client.node.send(&Message::Goodbye { client: number }, &client.server, deadline)?;
    // Until the message has left.
    while client.node.endpoint.transmits_in_flight() > 0 && Instant::now() < deadline {
        client.node.driver.progress()?;
    }
    Ok(())
}

impl Client<'_> {
    fn deadline(&self) -> Instant {
        Instant::now() + self.args.patience()
    }

    /// Connects to the server. Returns the number that the server assigned.
    fn connect(&mut self) -> Result<u32, Failure> {
        let deadline = self.deadline();
        let regions = [&self.regions[0], &self.regions[1]].map(|region| {
            let remote = region.remote();
            Region { address: remote.address(), len: remote.len(), key: remote.key() }
        });
        let address = self.node.endpoint.address().bytes().to_vec();
        let connect = Message::Connect { version: VERSION, address, regions };
        self.node.send(&connect, &self.server, deadline)?;
        loop {
            match self.node.hear(deadline)? {
                Some(Heard::Message(Message::Welcome { client })) => return Ok(client),
                Some(Heard::Message(Message::Refused { reason, .. })) => {
                    return Err(Failure::refused(&reason));
                }
                Some(Heard::Failed(failure)) => return Err(failure.into()),
                Some(_) => {}
                None => return Err(Failure::lost("welcome by the server")),
            }
        }
    }

    /// Runs one request, until the last byte is compared.
    fn ask(&mut self, client: u32, number: u32, seed: u64) -> Result<(), Failure> {
        let slots = (REGION_LEN as u64).checked_div(self.args.page_size).unwrap_or(0);
        let mut pages = draw_pages(seed, self.args.pages, slots as u32);
        match self.args.add_index {
            Some(AddIndex::Repeated) => pages.push(pages[0]),
            Some(AddIndex::Outside) => pages.push(slots as u32),
            None => {}
        }
        let fill = Fill { number, seed, page_size: self.args.page_size, pages };
        let deadline = self.deadline();
        let message = Message::Fill { client, fill: fill.clone() };
        self.node.send(&message, &self.server, deadline)?;
        if self.args.rest_after.is_some_and(|after| number > after) {
            println!("resting");
            std::thread::sleep(self.args.patience());
        }
        let mut arrivals = Arrivals::of(number);
        while !arrivals.are_complete() {
            match self.node.hear(deadline)? {
                Some(Heard::Message(Message::Accepted { number, told })) => arrivals.accepted(number, told),
                Some(Heard::Message(Message::Refused { reason, .. })) => {
                    return Err(Failure::refused(&reason));
                }
                Some(Heard::Written(immediate)) => arrivals.written(immediate),
                Some(Heard::Failed(failure)) => return Err(failure.into()),
                Some(_) => {}
                None => return Err(Failure::lost("all pages within the deadline")),
            }
        }
        self.compare(&fill)
    }

    fn compare(&self, fill: &Fill) -> Result<(), Failure> {
        let page_size = fill.page_size as usize;
        let (mut expected, mut arrived) = (vec![0; page_size], vec![0; page_size]);
        let mut bytes = Bytes::new(fill.seed);
        for (number, region) in self.regions.iter().enumerate() {
            for page in &fill.pages {
                bytes.fill(&mut expected);
                region.bytes().read_at(*page as usize * page_size, &mut arrived);
                if expected != arrived {
                    let same =
                        expected.iter().zip(&arrived).take_while(|(expected, arrived)| expected == arrived);
                    return Err(Failure::mismatch(number, *page, same.count()));
                }
            }
        }
        Ok(())
    }
}
