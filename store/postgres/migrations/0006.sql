-- What is ready is in a generation of the queue: its kind is 4 times that, and one of the
-- four. Claims look at those from the mark to the last value.
create sequence storageapi.queue_generation minvalue 0;
insert into storageapi.marks (name, event) values ('generation', 0);

create index leases_until on storageapi.leases (until);

insert into storageapi.versions (version) values (6);
